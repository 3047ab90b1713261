//! The kernels' parameters, as `*.cu` declares them, and how many threads take part.

use std::ffi::c_void;
use std::ptr::null;

use super::gpu::{Gpu, Kernel};
use super::memory::{Fault, Stream};

pub(super) const MOST_RESIDUES: usize = 19;
pub(super) const MOST_PARTS: usize = 4;
/// Threads of a block.
const THREADS: u32 = 256;
/// Words of 32 bits that 32 threads draw.
const RUN: usize = 1024;
/// Rows of a tile of tensor cores, or of the twin.
pub(super) const TILE_ROWS: usize = 128;

/// A piece of sixteen bytes of the inner dimension.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    pub down: i32,
    pub right: i32,
    pub ahead: i32,
    pub unused: i32,
}

/// `Map` of linear.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Map {
    pub a: u64,
    pub b: u64,
    pub out: u64,
    pub pieces: u64,
    pub a_plane: i64,
    pub b_plane: i64,
    pub out_plane: i64,
    pub out_row: i64,
    pub rows: i32,
    pub columns: i32,
    pub count: i32,
    pub a_row: i32,
    pub image: i32,
    pub place: i32,
    pub group: i32,
    pub height: i32,
    pub width: i32,
    pub first: i32,
    pub start: i32,
    pub run: i32,
    pub across: i32,
    pub strides: [i32; 2],
    pub pads: [i32; 2],
    pub slices: i32,
    pub planes: i32,
    pub modulus: [u32; MOST_RESIDUES],
    pub reciprocal: [u32; MOST_RESIDUES],
    pub offset: [u32; MOST_RESIDUES],
    pub factor: [u32; MOST_RESIDUES],
}

/// `Residues` of operands.cu.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Residues {
    pub modulus: [u32; MOST_RESIDUES],
    pub reciprocal: [u32; MOST_RESIDUES],
    pub high: [u32; MOST_RESIDUES],
    pub sign: [u32; MOST_RESIDUES],
}

/// `Channels` of operands.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Channels {
    pub words: u64,
    pub out: u64,
    pub plane: i64,
    pub images: i32,
    pub places: i32,
    pub groups: i32,
    pub channels: i32,
    pub image: i32,
    pub place: i32,
    pub planes: i32,
    pub residues: Residues,
}

/// `Rows` of operands.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub words: u64,
    pub out: u64,
    pub plane: i64,
    pub rows: i32,
    pub channels: i32,
    pub elements: i32,
    pub row: i32,
    pub planes: i32,
    pub residues: Residues,
}

/// `Recombined` of operands.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Recombined {
    pub residues: u64,
    pub out: u64,
    pub plane: i64,
    pub count: i64,
    pub planes: i32,
    pub product: u64,
    pub cofactor: [u64; MOST_RESIDUES],
    pub fraction: [u64; MOST_RESIDUES],
}

/// `Plain` of words.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Plain {
    pub a: [u64; MOST_PARTS],
    pub b: [u64; MOST_PARTS],
    pub out: u64,
    pub out_row: i64,
    pub parts: i32,
    pub groups: i32,
    pub rows: i32,
    pub columns: i32,
    pub channels: i32,
    pub kernel: [i32; 2],
    pub dilations: [i32; 2],
    pub height: i32,
    pub width: i32,
    pub first: i32,
    pub start: i32,
    pub run: i32,
    pub across: i32,
    pub strides: [i32; 2],
    pub pads: [i32; 2],
}

/// `Drawn` of prg.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    pub keys: u64,
    pub out: u64,
    pub nonce: u64,
    pub start: i64,
    pub count: i64,
    pub adds: i32,
    pub wide: i32,
}

/// Pieces of sixteen that `channels` take.
pub(super) fn pieces(channels: usize) -> usize {
    channels.div_ceil(16)
}

impl Gpu {
    /// Starts a kernel with one parameter.
    fn launch<T>(&self, kernel: &Kernel, grid: [usize; 3], parameter: &T, stream: &Stream) -> Result<(), Fault> {
        let [x, y, z] = grid.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX));
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        let mut parameters = [std::ptr::from_ref(parameter).cast_mut().cast::<c_void>()];
        // SAFETY: the function is of a module that is never unloaded and takes one parameter of this layout, which is copied
        // now; what it points to lives on the device until the work of this stream that uses it is done.
        let status = unsafe {
            cudarc::driver::sys::cuLaunchKernel(
                kernel.function,
                x,
                y,
                z,
                THREADS,
                1,
                1,
                kernel.shared,
                stream.raw(),
                parameters.as_mut_ptr(),
                null::<*mut c_void>().cast_mut().cast(),
            )
        };
        Fault::of(status)
    }

    /// Products of a map, or of their residues, in words or residues.
    pub(super) fn multiply(&self, map: &Map, groups: usize, stream: &Stream) -> Result<(), Fault> {
        let residues = map.planes != LIMBS as i32;
        let kernel = if residues { &self.kernels.residues } else { &self.kernels.limbs };
        let beside = if residues { map.planes } else { map.slices } as usize;
        let grid = [
            (map.columns as usize).div_ceil(self.tile_columns()),
            (map.rows as usize).div_ceil(TILE_ROWS),
            groups * beside,
        ];
        self.launch(kernel, grid, map, stream)
    }

    /// Blocks that compute side by side for sums of so few tiles that most of the device would rest.
    pub(super) fn slices(&self, rows: usize, columns: usize, groups: usize, pieces: usize) -> usize {
        let tiles = rows.div_ceil(TILE_ROWS) * columns.div_ceil(self.tile_columns()) * groups;
        let turns = 10 * pieces.div_ceil(8);
        (self.multiprocessors / tiles.max(1)).clamp(1, 16).min(turns.max(1))
    }

    pub(super) fn pack_channels(&self, wide: bool, of: &Channels, stream: &Stream) -> Result<(), Fault> {
        let kernel = &self.kernels.pack_channels[usize::from(wide)];
        let threads = of.images as usize * of.places as usize * of.groups as usize * pieces(of.channels as usize);
        self.launch(kernel, [threads.div_ceil(THREADS as usize), 1, 1], of, stream)
    }

    pub(super) fn pack_rows(&self, wide: bool, of: &Rows, stream: &Stream) -> Result<(), Fault> {
        let kernel = &self.kernels.pack_rows[usize::from(wide)];
        let threads = of.rows as usize * of.elements as usize * pieces(of.channels as usize);
        self.launch(kernel, [threads.div_ceil(THREADS as usize), 1, 1], of, stream)
    }

    pub(super) fn recombine(&self, of: &Recombined, stream: &Stream) -> Result<(), Fault> {
        let threads = (of.count as usize).div_ceil(4);
        self.launch(&self.kernels.recombine, [threads.div_ceil(THREADS as usize), 1, 1], of, stream)
    }

    /// A convolution of one channel a group.
    pub(super) fn depthwise(&self, wide: bool, of: &Plain, stream: &Stream) -> Result<(), Fault> {
        let kernel = &self.kernels.depthwise[usize::from(wide)];
        let blocks = (of.columns as usize).div_ceil(THREADS as usize);
        self.launch(kernel, [blocks, of.rows as usize * of.groups as usize, 1], of, stream)
    }

    /// Words of a generator.
    pub(super) fn draw(&self, of: &Drawn, stream: &Stream) -> Result<(), Fault> {
        let runs = (of.start as usize % RUN + of.count as usize).div_ceil(RUN);
        self.launch(&self.kernels.draw, [runs.div_ceil(THREADS as usize / 32), 1, 1], of, stream)
    }

    /// The twin of [`Gpu::multiply`].
    pub(super) fn plain(&self, wide: bool, of: &Plain, stream: &Stream) -> Result<(), Fault> {
        let kernel = &self.kernels.plain[usize::from(wide)];
        let grid =
            [(of.columns as usize).div_ceil(TILE_ROWS), (of.rows as usize).div_ceil(TILE_ROWS), of.groups as usize];
        self.launch(kernel, grid, of, stream)
    }
}

/// Planes of an operand of 32-bit words.
pub(super) const LIMBS: usize = 4;
