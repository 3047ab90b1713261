//! The inter-linear pipeline switched off: in front of every product the parties send each other their parts of w - B again, in the
//! round in which x is opened. It is the same message each time and hides what it hid the first time, and what arrives is what all have:
//! this shows what opening weights once saves, and serves nothing else.

use std::sync::Arc;

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word};

use super::linear::Fill;
use super::open::{Exchange, Masked};
use super::share;
use super::site::purpose;
use super::{Arith, Beaver, open};
use crate::api::{Options, Result, Shaped};
use crate::cost::Cost;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::pieces::tile_lens;
use crate::masked::seed::Mask;

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
enum Exchanged<W> {
    Weight(Exchange<W>),
    Input(Masked<W>),
}

impl<W: Word> Machine for Exchanged<W> {
    /// Of the input only.
    type Output = Option<(Buffer<W>, Buffer<W>)>;

    fn layout(&self) -> &Layout {
        match self {
            Exchanged::Weight(machine) => machine.layout(),
            Exchanged::Input(machine) => machine.layout(),
        }
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match self {
            Exchanged::Weight(machine) => machine.local(step, out),
            Exchanged::Input(machine) => machine.local(step, out),
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match self {
            Exchanged::Weight(machine) => machine.absorb(step, inbox),
            Exchanged::Input(machine) => machine.absorb(step, inbox),
        }
    }

    fn finish(self) -> Self::Output {
        match self {
            Exchanged::Weight(_) => None,
            Exchanged::Input(machine) => Some(machine.finish()),
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
    pub(super) fn open_beside(&mut self, x: &Arith<W>, len: usize, own: Option<&Fill<W>>) -> Result<Arith<W>> {
        let (tile, site) = (self.party.options.tile, self.party.sites()?);
        let mut opened = share::Opening::new(x.shape(), self.number(), self.party.computes());
        if self.party.rests() {
            return Ok(opened.finish());
        }
        let (computes, weights) = (self.party.computes(), len.div_ceil(tile));
        let range = |index: usize, all: usize| index * tile..all.min((index + 1) * tile);
        let machines = (0..weights + x.len().div_ceil(tile)).map(|index| match index.checked_sub(weights) {
            Some(index) => {
                let range = range(index, x.len());
                Exchanged::Input(Masked::new(site(index, range.len()).into(), purpose::OPENING, x.tile(range)))
            }
            // It draws nothing, so that the input's tiles may have the same numbers.
            None => {
                let range = range(index, len);
                let mut value = Buffer::zeros(range.len());
                if let Some(own) = own.filter(|_| computes) {
                    own(range.start, &mut value);
                }
                Exchanged::Weight(Exchange::new(site(index, range.len()).into(), value))
            }
        });
        self.party.scheduler.run_each(machines, |index, output| {
            if let Some(tile) = output {
                opened.put(range(index - weights, x.len()), &tile.0, &tile.1);
            }
        })?;
        Ok(opened.finish())
    }
}
