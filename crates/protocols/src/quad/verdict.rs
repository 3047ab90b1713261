//! The check before anything is opened: digests are compared, then all four agree whether all compared well.
//!
//! Round 0: the first of each line of what was *given* sends its digests, layer by layer ([`super::transcript`]). Round 1: every
//! party tells every other whether they compared well. Round 2: if nobody said otherwise, P1 and P2 send P3 the digests of what
//! they *computed*. Round 3: every party sends every other its verdict on both. Round 4: every party sends every other the verdicts
//! it was sent. Of each party's verdict there are then three copies, of which two are honest: the majority is the same everywhere,
//! and so is what the honest parties do.
//!
//! That there is a difference, and in which layer the first one is, follows from what the cheater did and from no secret: P3 names the
//! first layer in which either of P1 and P2 differs, and not which of them.

use std::sync::Arc;

use covey_kernels::constant_time::equal_bytes;

use super::challenge::Challenge;
use super::share::Role;
use super::tampering::{Check as Tested, is_done};
use super::transcript::{COMPUTED, DIGEST, GIVEN, Line, Transcript};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

/// Computing parties.
const PARTIES: usize = 4;
/// Bytes of a verdict: zeros if all is well, else what differs, and the layer.
const VERDICT: usize = 5;
type Verdict = [u8; VERDICT];
const WELL: Verdict = [0; VERDICT];

/// What differs, in a verdict: a line that was given, by its place, what was computed, or what another party said.
pub(super) const FIRST_LINE: u8 = 1;
pub(super) const OPENED: u8 = 100;
const TOLD: u8 = 101;

/// The rounds.
const DIGESTS_OF_GIVEN: Step = Step::Online(0);
const OPINIONS: Step = Step::Online(1);
const DIGESTS_OF_COMPUTED: Step = Step::Online(2);
const VERDICTS: Step = Step::Online(3);
const COPIES: Step = Step::Online(4);

/// What the parties agree on when something differs.
pub(super) struct Finding {
    /// Who found it.
    pub party: usize,
    pub what: &'static str,
    /// The number of the layer; the party may have made it up.
    pub layer: usize,
}

/// The agreement, at one party.
pub(super) struct Check {
    layout: Layout,
    me: Role,
    /// Digests by line, layer after layer.
    given: [Vec<u8>; GIVEN.len()],
    computed: [Vec<u8>; COMPUTED.len()],
    /// What combines an opening, layer after layer.
    challenges: Vec<Vec<Arc<Challenge>>>,
    own: Verdict,
    /// By sender: what it told this party, and what the others say it told them.
    told: [[Verdict; PARTIES]; PARTIES],
}

/// The messages of a check of `layers` layers.
pub(super) fn layout(layers: usize) -> Layout {
    let mut layout = Layout::default();
    let mut digests = |step, lines: &[Line]| {
        for line in lines {
            let [from, to] = line.ends();
            layout.bytes(step, from, to, layers * DIGEST);
        }
    };
    digests(DIGESTS_OF_GIVEN, &GIVEN);
    digests(DIGESTS_OF_COMPUTED, &COMPUTED);
    for from in 0..PARTIES {
        for to in others(from) {
            layout.bytes(OPINIONS, from, to, VERDICT);
            layout.bytes(VERDICTS, from, to, VERDICT);
            layout.bytes(COPIES, from, to, VERDICT * (PARTIES - 2));
        }
    }
    layout
}

fn others(party: usize) -> impl Iterator<Item = usize> {
    (0..PARTIES).filter(move |&other| other != party)
}

/// The parties whose verdicts `from` passes on to `to`.
fn passed_on(from: usize, to: usize) -> impl Iterator<Item = usize> {
    others(from).filter(move |&party| party != to)
}

fn verdict(what: u8, layer: usize) -> Verdict {
    let [a, b, c, d] = (layer as u32).to_le_bytes();
    [what, a, b, c, d]
}

/// The first layer in which digests differ.
fn difference(own: &[u8], other: &[u8]) -> Option<usize> {
    own.chunks(DIGEST).zip(other.chunks(DIGEST)).position(|(own, other)| !equal_bytes(own, other))
}

impl Check {
    pub fn new(me: Role, transcript: &Transcript) -> Self {
        Check {
            layout: layout(transcript.len()),
            me,
            given: GIVEN.map(|line| transcript.line(line)),
            computed: COMPUTED.map(|line| transcript.line(line)),
            challenges: transcript.challenges(),
            own: WELL,
            told: [[WELL; PARTIES]; PARTIES],
        }
    }

    /// Sends every other party this party's verdict so far.
    fn say(&self, out: &mut Outbox) {
        others(self.me as usize).for_each(|to| out.bytes(to, &self.own));
    }

    fn hear(&mut self, inbox: &mut Inbox) {
        let me = self.me as usize;
        for from in others(me) {
            self.told[from][me] = inbox.bytes(from, VERDICT).try_into().expect("sized");
        }
    }

    /// What most of those say who know what `party` said, the party itself among them.
    fn agreed(&self, party: usize) -> Verdict {
        let me = self.me as usize;
        if party == me {
            return if is_done(Tested::Own) { self.own } else { WELL };
        }
        if !is_done(Tested::Echoes) {
            return self.told[party][me];
        }
        let copies = passed_on(me, party).map(|witness| self.told[party][witness]);
        let all: Vec<Verdict> = std::iter::once(self.told[party][me]).chain(copies).collect();
        let most = |verdict: &&Verdict| all.iter().filter(|other| other == verdict).count() >= 2;
        // It told everyone something else: whatever that was, it was not that all is well.
        all.iter().find(most).copied().unwrap_or(verdict(u8::MAX, 0))
    }
}

impl Machine for Check {
    type Output = Option<Finding>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let me = self.me as usize;
        match step {
            Step::Offline => {}
            DIGESTS_OF_GIVEN => {
                for (line, digests) in GIVEN.iter().zip(&self.given).filter(|(line, _)| line.ends()[0] == me) {
                    out.bytes(line.ends()[1], digests);
                }
            }
            OPINIONS | VERDICTS => self.say(out),
            DIGESTS_OF_COMPUTED => {
                let well = self.own == WELL || !is_done(Tested::GivenFirst) || !is_done(Tested::Own);
                for (line, digests) in COMPUTED.iter().zip(&self.computed).filter(|(line, _)| line.ends()[0] == me) {
                    match well {
                        true => out.bytes(line.ends()[1], digests),
                        false => out.bytes(line.ends()[1], &vec![0; digests.len()]),
                    }
                }
            }
            Step::Online(_) => {
                for to in others(me) {
                    passed_on(me, to).for_each(|party| out.bytes(to, &self.told[party][me]));
                }
            }
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let me = self.me as usize;
        match step {
            Step::Offline => {}
            DIGESTS_OF_GIVEN => {
                for (index, (line, own)) in GIVEN.iter().zip(&self.given).enumerate() {
                    let [from, to] = line.ends();
                    if to == me
                        && let Some(layer) = difference(own, inbox.bytes(from, own.len()))
                        && self.own == WELL
                        && is_done(Tested::of(*line))
                    {
                        self.own = verdict(FIRST_LINE + index as u8, layer);
                    }
                }
            }
            OPINIONS => {
                self.hear(inbox);
                if self.own == WELL && self.told.iter().any(|told| told[me] != WELL) && is_done(Tested::GivenFirst) {
                    self.own = verdict(TOLD, 0);
                }
            }
            DIGESTS_OF_COMPUTED => {
                let layers: Vec<usize> = COMPUTED
                    .iter()
                    .zip(&self.computed)
                    .filter(|(line, _)| is_done(Tested::of(**line)))
                    .filter_map(|(line, own)| difference(own, inbox.bytes(line.ends()[0], own.len())))
                    .collect();
                // Of each line: where an earlier layer differs, a later one says nothing of what combines it.
                layers.iter().flat_map(|&layer| &self.challenges[layer]).for_each(|by| by.spend());
                if let Some(layer) = layers.into_iter().min().filter(|_| self.own == WELL) {
                    self.own = verdict(OPENED, layer);
                }
            }
            VERDICTS => self.hear(inbox),
            Step::Online(_) => {
                for from in others(me) {
                    for party in passed_on(from, me) {
                        self.told[party][from] = inbox.bytes(from, VERDICT).try_into().expect("sized");
                    }
                }
            }
        }
    }

    fn finish(self) -> Self::Output {
        let found = (0..PARTIES).map(|party| (party, self.agreed(party))).filter(|(_, verdict)| *verdict != WELL);
        // Who found something itself goes before who was told.
        let (party, [what, a, b, c, d]) = found.min_by_key(|(party, verdict)| (verdict[0] == TOLD, *party))?;
        let layer = u32::from_le_bytes([a, b, c, d]) as usize;
        let line = what.checked_sub(FIRST_LINE).and_then(|index| GIVEN.get(usize::from(index)));
        let what = match (what, line) {
            (_, Some(line)) => line.dispute(),
            (OPENED, _) => Line::P1ToP3.dispute(),
            _ => "something differs, and not what",
        };
        Some(Finding { party, what, layer })
    }
}

#[cfg(test)]
mod tests {
    use super::super::transcript::Digests;
    use super::*;

    /// Changes a message from one party to another in a step.
    type Lie<'a> = dyn Fn(Step, usize, usize, &mut Vec<u8>) + 'a;

    /// Runs the agreement; `noted` is what each party has on each line, `lie` changes a message of `cheater`.
    fn run(noted: &dyn Fn(usize, Line) -> u8, lie: &Lie) -> Vec<Option<Finding>> {
        let transcript = |me: usize| {
            let mut transcript = Transcript::new("first");
            for layer in 0..2u8 {
                let mut digests = Digests::default();
                for line in GIVEN.into_iter().chain(COMPUTED) {
                    digests[line as usize] = Some([layer + noted(me, line); DIGEST]);
                }
                transcript.add(&digests);
                transcript.enter("second");
            }
            transcript
        };
        let mut parties: Vec<Check> = (0..PARTIES).map(|me| Check::new(Role::of(me), &transcript(me))).collect();
        for step in (0..5).map(Step::Online) {
            let mut sent: Vec<Outbox> = (0..PARTIES).map(|_| Outbox::new(PARTIES)).collect();
            parties.iter_mut().zip(&mut sent).for_each(|(party, out)| party.local(step, out));
            for (me, party) in parties.iter_mut().enumerate() {
                let mut inbox = Inbox::new(PARTIES);
                let due: Vec<_> = party.layout().due(step, me).copied().collect();
                for message in &due {
                    let mut bytes = sent[message.from].take(me);
                    lie(step, message.from, me, &mut bytes);
                    assert_eq!(bytes.len(), message.len);
                    inbox.put(message.from, bytes);
                }
                if !due.is_empty() {
                    party.absorb(step, &mut inbox);
                }
            }
        }
        parties.into_iter().map(Check::finish).collect()
    }

    fn agree(found: &[Option<Finding>], honest: &[usize]) -> Option<(usize, &'static str, usize)> {
        let of = |party: &usize| found[*party].as_ref().map(|f| (f.party, f.what, f.layer));
        let all: Vec<_> = honest.iter().map(of).collect();
        assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
        all[0]
    }

    #[test]
    fn a_difference_on_any_line_stops_all_four() {
        assert!(agree(&run(&|_, _| 0, &|_, _, _, _| {}), &[0, 1, 2, 3]).is_none());
        for line in GIVEN.into_iter().chain(COMPUTED) {
            let [from, to] = line.ends();
            let found = run(&|me, on| u8::from(me == from && on == line), &|_, _, _, _| {});
            assert_eq!(agree(&found, &[0, 1, 2, 3]), Some((to, line.dispute(), 0)));
        }
    }

    #[test]
    fn honest_parties_agree_whatever_the_fourth_says() {
        for cheater in 0..PARTIES {
            let honest: Vec<usize> = others(cheater).collect();
            // Each receiver is told something else, in each round, for all four ways to tell two of three apart.
            for round in 0..5 {
                for pattern in 1..8u8 {
                    let lie = |step: Step, from: usize, to: usize, bytes: &mut Vec<u8>| {
                        let place = honest.iter().position(|&party| party == to);
                        if from == cheater
                            && step == Step::Online(round)
                            && place.is_some_and(|p| pattern >> p & 1 == 1)
                        {
                            bytes.iter_mut().for_each(|byte| *byte ^= 0x55 + to as u8);
                        }
                    };
                    agree(&run(&|_, _| 0, &lie), &honest);
                }
            }
        }
    }

    #[test]
    fn no_digest_of_what_is_computed_is_sent_where_what_was_given_differs() {
        let digests = std::cell::RefCell::new(Vec::new());
        let lie = |step: Step, _: usize, _: usize, bytes: &mut Vec<u8>| {
            if step == DIGESTS_OF_COMPUTED {
                digests.borrow_mut().push(bytes.clone());
            }
        };
        run(&|me, line| u8::from(me == 2 && line == Line::P1ToP2), &lie);
        assert!(
            digests.borrow().iter().all(|bytes| bytes.iter().all(|&byte| byte == 0)) && digests.borrow().len() == 2
        );
    }
}
