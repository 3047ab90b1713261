//! The inter-linear pipeline switched off: in front of every product the parties send each other their parts of w - B again, in the
//! round in which x is opened. It is the same message each time and hides what it hid the first time, and what arrives is what all have:
//! this shows what opening weights once saves, and serves nothing else.

use std::sync::Arc;

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word};

use super::linear::{Fill, Opened};
use super::open::{Exchange, Masked};
use super::site::{Site, purpose};
use super::{Arith, Beaver, open};
use crate::api::{Options, Result};
use crate::cost::Cost;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::Seat;
use crate::masked::pieces::tile_lens;
use crate::masked::seed::Mask;
use crate::randomness::Place;

/// A party's part of E = w - B, from any element on.
pub(super) fn own_part<W: Word>(share: Fill<W>, mask: Mask) -> Fill<W> {
    Arc::new(move |start: usize, out: &mut [W]| {
        share(start, out);
        let mut drawn = Buffer::stale(out.len());
        mask.fill(start, &mut drawn);
        elementwise::sub_assign(out, &drawn);
    })
}

/// A tile of the weight or one of the input.
enum Opening<W> {
    Weight(Exchange<W>),
    Input(Masked<W>),
}

impl<W: Word> Machine for Opening<W> {
    /// Of the input only.
    type Output = Option<(Buffer<W>, Buffer<W>)>;

    fn layout(&self) -> &Layout {
        match self {
            Opening::Weight(machine) => machine.layout(),
            Opening::Input(machine) => machine.layout(),
        }
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match self {
            Opening::Weight(machine) => machine.local(step, out),
            Opening::Input(machine) => machine.local(step, out),
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match self {
            Opening::Weight(machine) => machine.absorb(step, inbox),
            Opening::Input(machine) => machine.absorb(step, inbox),
        }
    }

    fn finish(self) -> Self::Output {
        match self {
            Opening::Weight(_) => None,
            Opening::Input(machine) => Some(machine.finish()),
        }
    }
}

/// What opening a weight of `weights` elements and an input of `inputs` in one round costs.
pub(super) fn plan(weights: usize, inputs: usize, ring: Ring, options: &Options) -> Cost {
    let table = super::site::table_of(options);
    let tiles = tile_lens([weights, inputs], options.tile_size());
    Cost::of_tiles(tiles, options.window, |len| open::layout(table, len, ring))
}

impl<W: Word> Beaver<W> {
    /// [`Beaver::open_masked`] of x, beside `len` elements of a weight of which this party's part is `own`.
    pub(super) fn open_beside(&mut self, x: &Arith<W>, len: usize, own: Option<&Fill<W>>) -> Result<Opened<W>> {
        let (gate, tile, ring) = (self.gate, self.options.tile_size(), self.ring);
        self.gate += 1;
        let (generators, computes) = (self.generators()?, self.computes());
        let held = if computes { x.len() } else { 0 };
        let (table, party) = (self.table, self.party());
        let mut opened =
            Opened { difference: vec![W::ZERO; if party.is_some() { held } else { 0 }], mask: vec![W::ZERO; held] };
        if self.rests() {
            return Ok(opened);
        }
        let weights = len.div_ceil(tile);
        let machines = (0..weights + x.len().div_ceil(tile)).map(|index| {
            let (first, all) = if index < weights { (0, len) } else { (weights, x.len()) };
            let range = (index - first) * tile..all.min((index - first + 1) * tile);
            let place = Place { gate, tile: (index - first) as u32 };
            let seat = Seat { table, party, generators: generators.clone(), place, len: range.len() };
            let site = Site { seat, ring };
            if first > 0 || weights == 0 {
                return Opening::Input(Masked::new(site, purpose::OPENING, x.tile(range)));
            }
            let mut value = Buffer::zeros(range.len());
            if let Some(own) = own.filter(|_| computes) {
                own(range.start, &mut value);
            }
            Opening::Weight(Exchange::new(site, value))
        });
        self.scheduler.run_each(machines, |index, output| {
            if let Some((difference, mask)) = output.filter(|_| held > 0) {
                let start = (index - weights) * tile;
                if party.is_some() {
                    opened.difference[start..start + difference.len()].copy_from_slice(&difference);
                }
                opened.mask[start..start + mask.len()].copy_from_slice(&mask);
            }
        })?;
        Ok(opened)
    }
}
