//! A gate of Trio's with the checks of it, over one tile.
//!
//! P1 and P2 run Trio's gate with P0 as its dealer. P3 runs the dealer's part too, sends nothing, and notes what P0 sent. What
//! makes a gate checkable beyond that, [`Audited`] says for each.

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Word};

use super::checks::{DEALER, OTHER_SENDER, SENDER, TileChecks, VERIFIER};
use super::share::Role;
use super::transcript::{Digests, Line};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::trio;

/// One gate over one tile, seen from one party.
pub(super) type Site = crate::party::Site<Role>;

impl Site {
    /// The place in Trio's gate.
    pub fn inner(&self) -> trio::site::Site {
        let Site { role, ring, ref generators, position, len } = *self;
        trio::site::Site { role: role.inner(), ring, generators: generators.clone(), position, len }
    }

    pub(super) fn checks(&self) -> TileChecks {
        TileChecks::new(self.role, self.generators.clone(), self.position, self.len)
    }
}

/// What a share has beside Trio's part, over one tile.
pub(super) struct Beside<W> {
    /// w at P0, P1 and P2, V at P3. Empty in runs in which this party computes nothing.
    pub extra: Buffer<W>,
    /// Of an opening that is checked by combinations of its elements (`folding.rs`): the message from P1, and that from P2, of which the
    /// other has all and P3 the masks.
    pub messages: [Buffer<W>; 2],
}

impl<W: Word> Default for Beside<W> {
    fn default() -> Self {
        Buffer::default().into()
    }
}

impl<W: Word> From<Buffer<W>> for Beside<W> {
    fn from(extra: Buffer<W>) -> Self {
        Beside { extra, messages: Default::default() }
    }
}

/// A gate of Trio's that P3 can check.
pub(super) trait Audited: Send {
    type Inner: Machine;
    /// What the result has beside Trio's part.
    type Extra: Default + Send;

    fn inner(&mut self) -> &mut Self::Inner;
    fn into_inner(self) -> Self::Inner;
    /// All messages: Trio's, and those to P3.
    fn layout(&self) -> Layout;
    /// Whether a round's part comes before its masked messages.
    const COMPUTES_FIRST: bool = false;
    /// P1, P2: sends masked and verifies what is known before this party's part of online round `round`, or after it.
    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox);
    /// P1, P2: looks at what arrived in `step`, before Trio's gate takes it.
    fn receive(&mut self, _step: Step, _inbox: &Inbox) {}
    /// P1, P2: verifies what is known at the end.
    fn verify(&mut self, checks: &mut TileChecks) -> Self::Extra;
    /// P0, once it has dealt, and P3, at the end.
    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Self::Extra;
}

/// Adds to a layout P2's masked messages.
pub(super) fn masked_messages(layout: &mut Layout, round: usize, len: usize) {
    layout.bytes(Step::Online(round), SENDER, VERIFIER, len);
}

/// Adds to a layout the messages of an opening that P1 and P2 let P3 know under masks.
pub(super) fn masked_openings(layout: &mut Layout, len: usize) {
    [OTHER_SENDER, SENDER].iter().for_each(|&from| layout.bytes(Step::Online(0), from, VERIFIER, len));
}

/// Adds to a layout what P0 sends for verification values.
pub(super) fn verification_values(layout: &mut Layout, len: usize) {
    layout.bytes(Step::Offline, DEALER, VERIFIER, len);
}

/// An [`Audited`] gate.
pub(super) struct Audit<A: Audited> {
    gate: A,
    layout: Layout,
    checks: TileChecks,
    /// Whether this party took part in the online rounds.
    online: bool,
    extra: A::Extra,
    /// What the dealer's part would send, at P3.
    unsent: Outbox,
}

impl<A: Audited> Audit<A> {
    pub fn new(site: &Site, gate: A) -> Self {
        let (layout, checks) = (gate.layout(), site.checks());
        let mut unsent = Outbox::new(if checks.role == Role::P3 { VERIFIER } else { 0 });
        if checks.role == Role::P3 {
            for message in layout.sent(Step::Offline, DEALER).filter(|message| message.to != VERIFIER) {
                unsent.supply(message.to, Vec::with_capacity(message.len));
            }
        }
        Audit { layout, gate, checks, online: false, extra: A::Extra::default(), unsent }
    }
}

impl<A: Audited> Machine for Audit<A> {
    type Output = (<A::Inner as Machine>::Output, A::Extra, Digests);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.checks.role, step) {
            (Role::P3, Step::Offline) => {
                self.gate.inner().local(step, &mut self.unsent);
                for (to, line) in [(1, Line::P3ToP1), (2, Line::P3ToP2)] {
                    let dealt = self.unsent.take(to);
                    if !dealt.is_empty() {
                        self.checks.note(line, &dealt);
                    }
                }
            }
            (Role::P0, Step::Offline) => {
                self.gate.inner().local(step, out);
                self.extra = self.gate.verify_dealt(&mut self.checks, out);
            }
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if A::COMPUTES_FIRST {
                    self.gate.inner().local(step, out);
                }
                self.gate.send_masked(round, &mut self.checks, out);
                if !A::COMPUTES_FIRST {
                    self.gate.inner().local(step, out);
                }
            }
            (Role::P3, Step::Online(_)) => {}
            _ => self.gate.inner().local(step, out),
        }
        self.online |= step != Step::Offline;
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        if self.checks.role == Role::P3 {
            for message in self.layout.due(step, VERIFIER) {
                self.checks.receive(step, inbox.take(message.from));
            }
            return;
        }
        if step == Step::Offline {
            let line = if self.checks.role == Role::P1 { Line::P3ToP1 } else { Line::P3ToP2 };
            for message in self.layout.due(step, self.checks.role as usize) {
                self.checks.note(line, inbox.peek(message.from));
            }
        }
        self.gate.receive(step, inbox);
        if self.gate.inner().layout().due(step, self.checks.role as usize).next().is_some() {
            self.gate.inner().absorb(step, inbox);
        }
    }

    fn finish(mut self) -> Self::Output {
        match self.checks.role {
            Role::P1 | Role::P2 if self.online => self.extra = self.gate.verify(&mut self.checks),
            Role::P3 if self.online => self.extra = self.gate.verify_dealt(&mut self.checks, &mut self.unsent),
            _ => {}
        }
        (self.gate.into_inner().finish(), self.extra, self.checks.close().digests())
    }
}

/// `extra` over `len` elements, or zeros where nothing was computed.
pub(super) fn put<W: Word>(extra: &[W], out: &mut [W]) {
    if extra.len() == out.len() {
        out.copy_from_slice(extra);
    }
}

/// The same for a plane.
pub(super) fn put_plane(extra: &[u64], out: &mut [u64], len: usize) {
    if extra.len() == BitTensor::words_per_plane(len) {
        out.copy_from_slice(extra);
    }
}
