//! The check before anything is opened: digests are compared, then all four agree whether all compared well.
//!
//! Round 0: who vouches sends its digests, layer by layer. Round 1: every party sends every other its verdict: all well, or the first
//! layer and line that differ. Round 2: every party sends every other the verdicts it was sent. Of each party's verdict there are then
//! three copies at each other party, of which two are honest if that party is not: the majority is the same everywhere, and so is what
//! the honest parties do.

use super::share::Role;
use super::tape::{DIGEST, Line, Transcript};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

/// Computing parties.
const PARTIES: usize = 4;
/// Bytes of a verdict: line + 1 or 0, layer.
const VERDICT: usize = 5;

/// What a party says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Well,
    /// Where the first difference is. A peer may have made it up.
    Differs {
        line: u8,
        layer: u32,
    },
}

impl Verdict {
    fn to_bytes(self) -> [u8; VERDICT] {
        let (line, layer) = match self {
            Verdict::Well => (0, 0),
            Verdict::Differs { line, layer } => (line + 1, layer),
        };
        let [a, b, c, d] = layer.to_le_bytes();
        [line, a, b, c, d]
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        match bytes {
            [0, 0, 0, 0, 0] => Verdict::Well,
            &[line, a, b, c, d] => {
                Verdict::Differs { line: line.wrapping_sub(1), layer: u32::from_le_bytes([a, b, c, d]) }
            }
            _ => Verdict::Differs { line: u8::MAX, layer: u32::MAX },
        }
    }
}

/// The agreement, at one party.
pub(super) struct Check {
    layout: Layout,
    me: Role,
    /// Digests of each line, layer after layer.
    lines: [Vec<u8>; Line::ALL.len()],
    own: Verdict,
    /// By sender: what it told this party, and what the others say it told them.
    told: [[Verdict; PARTIES]; PARTIES],
}

/// The messages of a check of `layers` layers.
pub(super) fn layout(layers: usize) -> Layout {
    let mut layout = Layout::default();
    for line in Line::ALL {
        let [from, to] = line.ends();
        layout.bytes(Step::Online(0), from, to, layers * DIGEST);
    }
    for from in 0..PARTIES {
        for to in (0..PARTIES).filter(|&to| to != from) {
            layout.bytes(Step::Online(1), from, to, VERDICT);
            layout.bytes(Step::Online(2), from, to, VERDICT * (PARTIES - 2));
        }
    }
    layout
}

/// The parties whose verdicts `from` passes on to `to`.
fn passed_on(from: usize, to: usize) -> impl Iterator<Item = usize> {
    (0..PARTIES).filter(move |&party| party != from && party != to)
}

impl Check {
    pub fn new(me: Role, transcript: &Transcript) -> Self {
        let (layers, lines) = (transcript.len(), Line::ALL.map(|line| transcript.line(line)));
        let told = [[Verdict::Well; PARTIES]; PARTIES];
        Check { layout: layout(layers), me, lines, own: Verdict::Well, told }
    }

    /// What most of those say who know what `party` said, the party itself among them.
    fn agreed(&self, party: usize) -> Verdict {
        if party == self.me as usize {
            return self.own;
        }
        let direct = self.told[party][self.me as usize];
        let copies = passed_on(self.me as usize, party).map(|witness| self.told[party][witness]);
        let all: Vec<Verdict> = std::iter::once(direct).chain(copies).collect();
        let count = |verdict: &Verdict| all.iter().filter(|other| *other == verdict).count();
        // It told everyone something else: whatever that was, it was not that all is well.
        let none = Verdict::Differs { line: u8::MAX, layer: u32::MAX };
        all.iter().copied().find(|verdict| count(verdict) >= 2).unwrap_or(none)
    }
}

impl Machine for Check {
    /// Who found what first, in the order of roles.
    type Output = Option<(usize, Verdict)>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let me = self.me as usize;
        match step {
            Step::Offline => {}
            Step::Online(0) => {
                for line in Line::ALL {
                    let [from, to] = line.ends();
                    if from == me {
                        out.bytes(to, &self.lines[line as usize]);
                    }
                }
            }
            Step::Online(1) => {
                (0..PARTIES).filter(|&to| to != me).for_each(|to| out.bytes(to, &self.own.to_bytes()));
            }
            Step::Online(_) => {
                for to in (0..PARTIES).filter(|&to| to != me) {
                    passed_on(me, to).for_each(|party| out.bytes(to, &self.told[party][me].to_bytes()));
                }
            }
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let me = self.me as usize;
        match step {
            Step::Offline => {}
            Step::Online(0) => {
                for line in Line::ALL {
                    let [from, to] = line.ends();
                    if to != me {
                        continue;
                    }
                    let own = &self.lines[line as usize];
                    let digests = inbox.bytes(from, own.len());
                    let differs = own.chunks(DIGEST).zip(digests.chunks(DIGEST)).position(|(own, other)| own != other);
                    if let (Some(layer), Verdict::Well) = (differs, self.own) {
                        self.own = Verdict::Differs { line: line as u8, layer: layer as u32 };
                    }
                }
            }
            Step::Online(1) => {
                for from in (0..PARTIES).filter(|&from| from != me) {
                    self.told[from][me] = Verdict::from_bytes(inbox.bytes(from, VERDICT));
                }
            }
            Step::Online(_) => {
                for from in (0..PARTIES).filter(|&from| from != me) {
                    for party in passed_on(from, me) {
                        self.told[party][from] = Verdict::from_bytes(inbox.bytes(from, VERDICT));
                    }
                }
            }
        }
    }

    fn finish(self) -> Self::Output {
        (0..PARTIES).map(|party| (party, self.agreed(party))).find(|(_, verdict)| *verdict != Verdict::Well)
    }
}
