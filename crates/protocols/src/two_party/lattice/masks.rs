//! Preprocessed layers. The exchange multiplies a random mask r of P1's instead of its share x1 (Beaver: Efficient multiparty protocols
//! using circuit randomization, CRYPTO '91, of one secret operand). Online P1 sends x1 - r, and P0, to whom that is uniform, multiplies
//! x0 + (x1 - r) alone.

use covey_kernels::packing;
use covey_ring::{Ring, Tensor, Word, wire};
use zeroize::Zeroizing;

use super::Lattice;
use crate::additive::Arith;
use crate::api::{Options, Phase, Result, Shaped};
use crate::cost::Cost;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::two_party::share::{self, Arithmetic};
use crate::two_party::{Site, TwoParty, Weight, plan};

/// The draw of r, from P1's own key.
const MASK: u32 = 0;

/// Elements of a message in the store.
const PIECE: usize = 1 << 17;

/// What a preprocessed layer goes on with.
pub(in crate::two_party) struct Preprocessed<W> {
    /// What P0 multiplies alone.
    pub x: Arith<W>,
    /// The share of the weights times r.
    pub product: Vec<W>,
}

fn layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.words(Step::Online(0), 1, 0, len, ring);
    layout
}

/// What P1 sends for a layer of `count` inputs.
pub(super) fn cost(count: usize, ring: Ring, options: &Options) -> Cost {
    let lens = plan::tile_lens(count, options.tile_size());
    plan::of_tiles(&lens, options.window, |&len| layout(len, ring))
}

/// x1 - r, from P1 to P0, and what P0 then has of x.
struct Difference<W> {
    layout: Layout,
    site: Site,
    share: Vec<W>,
}

impl<W: Word> Machine for Difference<W> {
    type Output = Vec<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if self.site.role == 1 && step == Step::Online(0) {
            let arithmetic = Arithmetic::new(self.site.ring);
            let mask = mask::<W>(&self.site);
            self.share.iter_mut().zip(mask).for_each(|(x, r)| *x = arithmetic.sub(*x, r));
            out.words(0, &self.share, self.site.ring);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        let arithmetic = Arithmetic::new(self.site.ring);
        let difference = inbox.words::<W>(1, self.share.len(), self.site.ring);
        self.share.iter_mut().zip(difference).for_each(|(x, d)| *x = arithmetic.add(*x, d));
    }

    fn finish(self) -> Vec<W> {
        self.share
    }
}

/// r of one tile of the layer's input, at P1.
fn mask<W: Word>(site: &Site) -> Vec<W> {
    share::draw(&site.generators, 1, site.position, MASK, site.ring, site.len)
}

impl<W: Word> TwoParty<W> {
    /// A layer of `outputs` results on masks. While preprocessing, the share of the product is kept for the online run, and what is returned
    /// means nothing.
    pub(in crate::two_party) fn preprocessed(
        &mut self,
        lattice: &Lattice,
        weight: &Weight<W>,
        x: &Arith<W>,
        outputs: usize,
    ) -> Result<Preprocessed<W>> {
        let (phase, ring, tile) = (self.party.scheduler.phase(), self.party.ring, self.party.options.tile);
        let sites = self.party.sites()?;
        let mut product = vec![W::ZERO; outputs];
        if phase == Phase::Online {
            for piece in product.chunks_mut(PIECE) {
                let kept = self.party.scheduler.take_kept(wire::words_len(piece.len(), ring))?;
                packing::unpack_words_into(&kept, ring, piece);
            }
        } else {
            let mut masks = Vec::new();
            if self.party.role == 1 {
                for (index, len) in plan::tile_lens(x.len(), tile).into_iter().enumerate() {
                    masks.extend(mask::<W>(&sites(index, len)));
                }
            }
            self.lattice_product(lattice, weight, &masks, &mut product)?;
        }
        if phase == Phase::Preprocess {
            for piece in product.chunks(PIECE) {
                let mut kept = Zeroizing::new(Vec::with_capacity(wire::words_len(piece.len(), ring)));
                packing::pack_words(piece, ring, &mut kept);
                self.party.scheduler.keep(&kept);
            }
            return Ok(Preprocessed { x: x.clone(), product });
        }
        let mut own = x.0.data().to_vec();
        self.party.each_tile_at(
            sites,
            x.len(),
            |site, range| Difference { layout: layout(site.len, ring), share: x.0.data()[range].to_vec(), site },
            |range, share| own[range].copy_from_slice(&share),
        )?;
        Ok(Preprocessed { x: Arith(Tensor::new(x.shape(), own)), product })
    }
}
