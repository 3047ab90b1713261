//! A gate of Trio's with the checks of it, over one tile.
//!
//! P1 and P2 run Trio's gate with P0 as its dealer. P3 runs the dealer's part too, sends nothing, and vouches for what P0 sent. What
//! makes a gate checkable beyond that, [`Audited`] says for each.

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Word};

use super::book::{Book, DEALER, DISCLOSER, VERIFIER};
use super::share::Role;
use super::tape::{Digests, Line};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::trio;

/// One gate over one tile, seen from one party.
pub(super) type Site = crate::party::Site<Role>;

impl Site {
    /// The place in Trio's gate.
    pub fn inner(&self) -> trio::site::Site {
        let Site { role, ring, ref generators, place, len } = *self;
        trio::site::Site { role: role.inner(), ring, generators: generators.clone(), place, len }
    }

    pub(super) fn book(&self) -> Book {
        Book::new(self.role, self.generators.clone(), self.place, self.len)
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
pub(super) trait Audited {
    type Inner: Machine;
    /// What the result has beside Trio's part.
    type Extra: Default;

    fn inner(&mut self) -> &mut Self::Inner;
    fn into_inner(self) -> Self::Inner;
    /// All messages: Trio's, and those to P3.
    fn layout(&self) -> Layout;
    /// Whether a round's part comes before what is disclosed in it.
    const COMPUTES_FIRST: bool = false;
    /// P1, P2: discloses and settles what is known before this party's part of online round `round`, or after it.
    fn disclose(&mut self, round: usize, book: &mut Book, out: &mut Outbox);
    /// P1, P2: looks at what arrived in `step`, before Trio's gate takes it.
    fn receive(&mut self, _step: Step, _inbox: &Inbox) {}
    /// P1, P2: settles what is known at the end.
    fn settle(&mut self, book: &mut Book) -> Self::Extra;
    /// P0, once it has dealt, and P3, at the end.
    fn settle_dealt(&mut self, book: &mut Book, out: &mut Outbox) -> Self::Extra;
}

/// Adds to a layout what P2 discloses.
pub(super) fn discloses(layout: &mut Layout, round: usize, len: usize) {
    layout.bytes(Step::Online(round), DISCLOSER, VERIFIER, len);
}

/// Adds to a layout what P0 sends for what is settled.
pub(super) fn settles(layout: &mut Layout, len: usize) {
    layout.bytes(Step::Offline, DEALER, VERIFIER, len);
}

/// An [`Audited`] gate.
pub(super) struct Audit<A: Audited> {
    gate: A,
    layout: Layout,
    book: Book,
    /// Whether this party took part in the online rounds.
    online: bool,
    extra: A::Extra,
    /// What the dealer's part would send, at P3.
    unsent: Outbox,
}

impl<A: Audited> Audit<A> {
    pub fn new(site: &Site, gate: A) -> Self {
        let (layout, book) = (gate.layout(), site.book());
        let mut unsent = Outbox::new(if book.role == Role::P3 { VERIFIER } else { 0 });
        if book.role == Role::P3 {
            for message in layout.sent(Step::Offline, DEALER).filter(|message| message.to != VERIFIER) {
                unsent.supply(message.to, Vec::with_capacity(message.len));
            }
        }
        Audit { layout, gate, book, online: false, extra: A::Extra::default(), unsent }
    }
}

impl<A: Audited> Machine for Audit<A> {
    type Output = (<A::Inner as Machine>::Output, A::Extra, Digests);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.book.role, step) {
            (Role::P3, Step::Offline) => {
                self.gate.inner().local(step, &mut self.unsent);
                for (to, line) in [(1, Line::P3ToP1), (2, Line::P3ToP2)] {
                    let dealt = self.unsent.take(to);
                    if !dealt.is_empty() {
                        self.book.note(line, &dealt);
                    }
                }
            }
            (Role::P0, Step::Offline) => {
                self.gate.inner().local(step, out);
                self.extra = self.gate.settle_dealt(&mut self.book, out);
            }
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if A::COMPUTES_FIRST {
                    self.gate.inner().local(step, out);
                }
                self.gate.disclose(round, &mut self.book, out);
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
        if self.book.role == Role::P3 {
            for message in self.layout.due(step, VERIFIER) {
                self.book.receive(step, inbox.take(message.from));
            }
            return;
        }
        if step == Step::Offline {
            let line = if self.book.role == Role::P1 { Line::P3ToP1 } else { Line::P3ToP2 };
            for message in self.layout.due(step, self.book.role as usize) {
                self.book.note(line, inbox.peek(message.from));
            }
        }
        self.gate.receive(step, inbox);
        if self.gate.inner().layout().due(step, self.book.role as usize).next().is_some() {
            self.gate.inner().absorb(step, inbox);
        }
    }

    fn finish(mut self) -> Self::Output {
        match self.book.role {
            Role::P1 | Role::P2 if self.online => self.extra = self.gate.settle(&mut self.book),
            Role::P3 if self.online => self.extra = self.gate.settle_dealt(&mut self.book, &mut self.unsent),
            _ => {}
        }
        (self.gate.into_inner().finish(), self.extra, self.book.close().digests())
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
