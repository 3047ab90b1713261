//! One suite on one protocol, judged by clear, by plain integers and by the plan.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use covey_protocols::Phase;
use covey_protocols::clear::Clear;
use covey_protocols::cost::{CostModel, MATERIAL};
use covey_protocols::parts::*;
use covey_protocols::planner::Planner;
use covey_ring::{Ring, Tensor};
use covey_runtime::{INPUTS, OUTPUTS};
use covey_transport::{Phase as StepKind, Snapshot};

use crate::bench::{Allowed, Bench, Record};
use crate::harness::{ClientHalf, Harness, WordOf};
use crate::samples::{modulo, seed, wrapped};
use crate::secrets;
use crate::suites::Suite;
use crate::{Failure, Session};

/// What a conforming run went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Cases.
    pub cases: usize,
    /// Elements compared, at one party.
    pub elements: usize,
    /// Large errors of probabilistic shifts, within what is stated.
    pub large_errors: usize,
    /// How long the parties took.
    pub time: Duration,
}

/// Traffic by (node, offline or online, from, to): bytes and messages.
type Traffic = BTreeMap<(u32, StepKind, usize, usize), (u64, u64)>;

/// Runs `suite` on clear alone, against plain integers.
pub fn conform_clear<S: Suite>(ring: Ring, suite: &S) -> Result<Counts, Failure> {
    let (records, _) = on_clear(ring, 1, suite)?;
    let mut counts = Counts { cases: records.len(), ..Counts::default() };
    for record in &records {
        let due = record.due.as_ref().ok_or_else(|| Failure::Shape {
            place: place::<S>(&record.case),
            who: "clear".into(),
            problem: "nothing but clear says what is due".into(),
        })?;
        judge(
            &Subject { suite: S::NAME, who: "clear", ring },
            record,
            due,
            "plain integers",
            Allowed::Exact,
            &mut counts,
        )?;
    }
    Ok(counts)
}

/// Runs `suite` in `session`: on clear, on the planner, and at every party, whose opened elements, messages and rounds must be
/// theirs.
pub fn conform<H: Harness, S: Suite>(session: &Session<H>, suite: &S) -> Result<Counts, Failure> {
    let (due, revealed) = on_clear(session.ring, H::COMPUTING, suite)?;
    let mut planner = Planner::new(CostModel::of::<H::Protocol>(), session.ring, session.options);
    let mut bench = Bench::new(&mut planner, None, H::COMPUTING);
    suite.run(&mut bench).map_err(|source| Failure::Protocol { place: place::<S>("the plan"), source })?;
    let expected = Expected { suite: S::NAME, inputs: suite.client_inputs(), due, revealed, planner };
    as_expected(session, &expected, &|bench| suite.run(bench))
}

/// A suite as clear and the planner ran it.
struct Expected {
    suite: &'static str,
    inputs: Vec<(Vec<usize>, Vec<i64>)>,
    due: Vec<Record>,
    revealed: Vec<Tensor<u64>>,
    planner: Planner,
}

/// A suite at one party.
type AtParty<'a, P> = dyn Fn(&mut Bench<P>) -> covey_protocols::api::Result<()> + Sync + 'a;

/// Runs a suite at every party and compares. Compiled once for each harness, not for each suite.
fn as_expected<H: Harness>(
    session: &Session<H>,
    expected: &Expected,
    at_party: &AtParty<H::Protocol>,
) -> Result<Counts, Failure> {
    let ring = session.ring;
    let Expected { suite, inputs, due, revealed, planner } = expected;
    let secret =
        |(shape, values): &(Vec<usize>, Vec<i64>)| secrets::tensor(Tensor::new(shape.clone(), wrapped(ring, values)));
    let inputs: Vec<Tensor<WordOf<H>>> = inputs.iter().map(secret).collect();
    let revealed_shapes: Vec<Vec<usize>> = revealed.iter().map(|tensor| tensor.shape().to_vec()).collect();
    let start = Instant::now();
    let (parties, (received, client_meter)) = session.run(
        |protocol, network| {
            let me = network.me();
            protocol.begin(Phase::Joint, session.run)?;
            let mut bench = Bench::new(protocol, Some(me), H::COMPUTING);
            let result = at_party(&mut bench);
            result.map_err(|source| Failure::Protocol { place: place_in(suite, bench.current()), source })?;
            Ok((bench.into_records(), network.meter().snapshot()))
        },
        |client, network| {
            client.enter(INPUTS);
            inputs.iter().try_for_each(|input| client.send(input))?;
            client.enter(OUTPUTS);
            let received = revealed_shapes.iter().map(|shape| client.receive(shape).map(secrets::opened));
            let received = received.collect::<Result<Vec<_>, _>>()?;
            Ok((received, network.meter().snapshot()))
        },
    )?;

    let time = start.elapsed();
    let mut counts = Counts::default();
    for (me, (records, meter)) in parties.iter().enumerate() {
        let who = format!("P{me}");
        let subject = Subject { suite, who: &who, ring };
        counts = Counts { cases: due.len(), time, ..Counts::default() };
        subject.lengths("all cases", records.len(), due.len())?;
        // A dealer learns nothing.
        for (record, due) in records.iter().zip(due).filter(|_| me < H::COMPUTING) {
            if let Some(plain) = &due.due {
                let exact = &mut Counts::default();
                judge(&Subject { who: "clear", ..subject }, due, plain, "plain integers", Allowed::Exact, exact)?;
            }
            judge(&subject, record, &due.values, "clear", record.allowed, &mut counts)?;
        }
        check_traffic(&subject, me, planner, meter, true)?;
    }
    let subject = Subject { suite, who: "the client", ring };
    for (received, due) in received.iter().zip(revealed) {
        let values = received.data().iter().map(|&word| ring.signed(word)).collect();
        let due: Vec<i64> = due.data().iter().map(|&word| ring.signed(word)).collect();
        let record = Record { case: "revealed".into(), values, due: None, allowed: Allowed::Exact };
        judge(&subject, &record, &due, "clear", Allowed::Exact, &mut counts)?;
    }
    check_traffic(&subject, H::PARTIES, planner, &client_meter, false)?;
    Ok(counts)
}

/// What clear opens and reveals.
fn on_clear<S: Suite>(ring: Ring, parties: usize, suite: &S) -> Result<(Vec<Record>, Vec<Tensor<u64>>), Failure> {
    let mut clear = Clear::new(ring, S::ON_VIOLATION);
    let inputs = suite.client_inputs();
    clear.provide(inputs.iter().map(|(shape, values)| Tensor::new(shape.clone(), wrapped(ring, values))));
    clear.begin(Phase::Joint, 1)?;
    let mut bench = Bench::new(&mut clear, None, parties);
    let result = suite.run(&mut bench);
    result.map_err(|source| Failure::Protocol { place: place::<S>(&format!("clear, {}", bench.current())), source })?;
    let records = bench.into_records();
    Ok((records, clear.take_revealed()))
}

fn place<S: Suite>(case: &str) -> String {
    place_in(S::NAME, case)
}

fn place_in(suite: &str, case: &str) -> String {
    format!("{suite}: {case}")
}

/// Where elements are judged.
#[derive(Clone, Copy)]
struct Subject<'a> {
    suite: &'a str,
    who: &'a str,
    ring: Ring,
}

impl Subject<'_> {
    fn lengths(&self, case: &str, found: usize, due: usize) -> Result<(), Failure> {
        if found == due {
            return Ok(());
        }
        let problem = format!("{found} results where {due} are due");
        Err(Failure::Shape { place: format!("{}: {case}", self.suite), who: self.who.into(), problem })
    }
}

/// Compares one record with what is due, and adds to `counts`.
fn judge(
    subject: &Subject,
    record: &Record,
    due: &[i64],
    source_of: &'static str,
    allowed: Allowed,
    counts: &mut Counts,
) -> Result<(), Failure> {
    subject.lengths(&record.case, record.values.len(), due.len())?;
    let ring = subject.ring;
    let case = format!("{}: {}", subject.suite, record.case);
    let mut large = 0;
    for (index, (&found, &due)) in record.values.iter().zip(due).enumerate() {
        let error = i128::from(found) - i128::from(due);
        let off = |by: i128| (0..=1).contains(&modulo(ring, error + by));
        let right = match allowed {
            Allowed::Exact => error == 0,
            Allowed::Ulp => off(0),
            Allowed::Probabilistic { .. } if off(0) => true,
            Allowed::Probabilistic { shift, .. } => {
                large += 1;
                off(1 << shift) || off(-(1 << shift))
            }
        };
        if !right {
            let who = subject.who.into();
            return Err(Failure::Value { place: case, who, index, found, due, source_of, seed: seed() });
        }
    }
    if let Allowed::Probabilistic { rate, .. } = allowed {
        // Six standard deviations of a binomial variable, and one for small counts.
        let most = (rate + 6.0 * rate.sqrt() + 1.0) as usize;
        if large > most {
            return Err(Failure::Errors { place: case, who: subject.who.into(), found: large, allowed: most });
        }
    }
    counts.elements += record.values.len();
    counts.large_errors += large;
    Ok(())
}

/// Every message that `me` sent or received must stand in the plan, and every one of the plan's in the meter.
fn check_traffic(
    subject: &Subject,
    me: usize,
    planner: &Planner,
    meter: &Snapshot,
    rounds: bool,
) -> Result<(), Failure> {
    // Correlated OTs come from a dealer.
    let keys = planner.public_keys();
    let planned: Traffic = planner
        .ledger()
        .iter()
        .chain([(&MATERIAL, &keys)])
        .flat_map(|(&node, cost)| cost.links.iter().map(move |(&(kind, from, to), t)| ((node, kind, from, to), t)))
        .filter(|((_, _, from, to), _)| *from == me || *to == me)
        .map(|(link, traffic)| (link, (traffic.bytes, traffic.messages)))
        .collect();
    let counted: Traffic =
        meter.rows.iter().map(|row| ((row.node, row.phase, row.from, row.to), (row.bytes, row.messages))).collect();
    let differ = |found: String, due: String| {
        Err(Failure::Traffic { place: subject.suite.into(), who: subject.who.into(), found, due })
    };
    for link in planned.keys().chain(counted.keys()) {
        let (found, due) = (counted.get(link), planned.get(link));
        if found != due {
            return differ(format!("{found:?} on {link:?}"), format!("{due:?}"));
        }
    }
    if !rounds {
        return Ok(());
    }
    let counted = |node: u32| {
        let of_node = |r: &&covey_transport::Rounds| r.node == node && r.phase == StepKind::Online;
        meter.rounds.iter().find(of_node).map_or(0, |rounds| rounds.count)
    };
    match planner.ledger().iter().find(|(node, cost)| cost.rounds != counted(**node)) {
        None => Ok(()),
        Some((node, cost)) => differ(format!("{} rounds of node {node}", counted(*node)), cost.rounds.to_string()),
    }
}
