//! Messages of the set-up and of the control stream: each input is read as every kind of message there is.

use std::path::Path;

use covey_messages::{
    self as messages, Check, Checkpoint, DataSet, DataSetName, Done, Fill, Hex, Infer, Join, Key, MessageError, Offer,
    PartyMessage, PhaseMessage, Proceed, Reply, Request, Resumed, RingMessage, RowsRun, Run as Runs, SessionReply,
    SessionRequest, ShareData, StoreMessage, TakeRole, Terms, Usage,
};
use covey_protocols::Options;
use covey_ring::Ring;
use covey_runtime::Profile;
use serde_json::Value;

use super::{Run, Target, line, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_json};
use crate::rng::Rng;

pub const MESSAGES: Target = Target { name: "messages", mutate, run: Run::Here(run), seed, file: false };

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    let (Some(mut value), Some(donor)) = (read(input), read(other)) else { return damage(rng, input, other) };
    if rng.once_in(6) {
        return damage(rng, input, other);
    }
    damage_json(rng, &mut value, &donor);
    value.to_string().into_bytes()
}

/// What a party checks of the terms before it answers.
fn check(terms: &Terms) -> Result<(), String> {
    line(Ring::try_from(terms.ring))?;
    terms.options.checked()?;
    assert!(!terms.options.to_string().contains('\n') && !terms.ring.to_string().contains('\n'));
    Ok(())
}

fn run(_: &Path, bytes: &[u8]) -> Result<(), String> {
    fn kind<T>(read: Result<T, MessageError>, then: impl FnOnce(&T) -> Result<(), String>) -> Result<(), String> {
        line(read).and_then(|message| then(&message))
    }
    let readings = [
        kind(messages::decode::<Request>(bytes), |message| match message {
            Request::Infer(infer) => check(&infer.terms),
            _ => Ok(()),
        }),
        kind(messages::decode::<PartyMessage>(bytes), |message| match message {
            PartyMessage::Hello(hello) => check(&hello.terms),
            PartyMessage::Refused { reason } => Err(messages::one_line(reason)),
        }),
        kind(messages::decode::<Reply>(bytes), |message| match message {
            Reply::Refused { reason } => Err(messages::one_line(reason)),
            _ => Ok(()),
        }),
        kind(messages::decode::<Proceed>(bytes), |_| Ok(())),
        kind(messages::decode::<SessionRequest>(bytes), |_| Ok(())),
        kind(messages::decode::<SessionReply>(bytes), |message| match message {
            SessionReply::Done(done) => {
                Profile::merged([done.profile.clone(), done.profile.clone()]).total();
                Ok(())
            }
            _ => Ok(()),
        }),
        kind(messages::decode::<StoreMessage>(bytes), |_| Ok(())),
    ];
    let mut refusals = Vec::new();
    for reading in readings {
        match reading {
            Ok(()) => return Ok(()),
            Err(refusal) => refusals.push(refusal),
        }
    }
    // That of the kind which it is, if it is any.
    let malformed = MessageError::Malformed.to_string();
    Err(refusals.into_iter().find(|refusal| *refusal != malformed).unwrap_or(malformed))
}

fn seed() -> Vec<(String, Vec<u8>)> {
    let terms = Terms {
        session: Hex([5; 16]),
        protocol: "trio".into(),
        ring: RingMessage::Pow2(32),
        program: Hex([6; 32]),
        options: Options::default().into(),
        parties: Vec::new(),
        client: "data".into(),
        silence_ms: 3000,
        network: Default::default(),
        without_dealer: false,
    };
    let runs = Runs { phase: PhaseMessage::Joint, batch: 1, inference: 2, count: 1, continues: false, ends: false };
    let done = Done { profile: Profile::default(), stored: 0, socket_bytes_sent: 9, usage: Usage::default() };
    let offer = StoreMessage::Offer(Offer { batch: Hex([1; 16]), start: vec![0, 1], count: vec![2, 3], turn: 0 });
    let offer_runs = StoreMessage::Offer(Offer { batch: Hex([1; 16]), start: vec![4], count: vec![2], turn: 7 });
    let asked = StoreMessage::Asked { batch: 1, count: 2, has: Some(vec![Hex([1; 16])]) };
    let overtaken = StoreMessage::Overtaken { reason: "no".into() };
    let stored = StoreMessage::Stored { any: true, gone: Some(vec![(Hex([1; 16]), 3)]) };
    let started = Reply::Started { names: vec!["alpha".into(), "beta".into()], stored_runs: vec![(1, 2)] };
    let take_role = TakeRole { protocol: "two-party".into(), program: Hex([6; 32]), role: 1, has: Some(Hex([2; 16])) };
    let checkpoint = Checkpoint { runs: 7, batch: 1, name: Hex([4; 16]) };
    let (job, history, nonce) = (Hex([3; 16]), Hex([8; 32]), Hex([9; 16]));
    let keeping = StoreMessage::Keeping { job, runs: 7, history, nonce };
    let serving = StoreMessage::ServingWeights { runs: 7, history, shared: job, nonce };
    let owner = Key(format!("covey:{}", "0a".repeat(32)).parse().expect("a key"));
    let data_set = DataSet { name: "records".into(), owner, version: Hex([4; 32]), rows: 9 };
    let data_set_name = DataSetName { name: "records".into(), owner: Some(owner) };
    let share_data = ShareData { name: "records".into(), rows: 9, readers: vec![owner], inference: 2 };
    let run_rows = RowsRun { run: runs, rows: vec![3, 8] };
    let (protocol, program, client) = ("trio".to_string(), Hex([6; 32]), "data".to_string());
    let check = Check { protocol, program, role: 1, parties: Vec::new(), client, without_dealer: false };
    vec![
        ("status".into(), messages::encode(&Request::Status)),
        ("check".into(), messages::encode(&Request::Check(check))),
        ("delete-weights".into(), messages::encode(&Request::DeleteWeights(program))),
        ("delete-store".into(), messages::encode(&Request::DeleteStore(Some(program)))),
        ("delete-data".into(), messages::encode(&Request::DeleteData(program, "records".into()))),
        ("infer".into(), messages::encode(&Request::Infer(Infer { role: 1, terms }))),
        ("join".into(), messages::encode(&Request::Join(Join { session: Hex([5; 16]), role: 2 }))),
        ("take-role".into(), messages::encode(&Request::TakeRole(take_role))),
        ("refused".into(), messages::encode(&Reply::Refused { reason: "no".into() })),
        ("started".into(), messages::encode(&started)),
        ("proceed".into(), messages::encode(&Proceed::Proceed)),
        ("queue".into(), messages::encode(&Proceed::Queue)),
        ("waiting".into(), messages::encode(&Reply::Waiting { place: 3, of: 5 })),
        ("run".into(), messages::encode(&SessionRequest::Run(runs))),
        ("fill".into(), messages::encode(&SessionRequest::Fill(Fill { batch: 1, count: 3 }))),
        ("done".into(), messages::encode(&SessionReply::Done(done))),
        ("offer".into(), messages::encode(&offer)),
        ("offer-runs".into(), messages::encode(&offer_runs)),
        ("stored".into(), messages::encode(&stored)),
        ("asked".into(), messages::encode(&asked)),
        ("overtaken".into(), messages::encode(&overtaken)),
        ("keep".into(), messages::encode(&SessionRequest::Keep(Hex([3; 16])))),
        ("kept".into(), messages::encode(&SessionReply::Kept(checkpoint))),
        ("resumed".into(), messages::encode(&SessionReply::Resumed(Resumed::From(checkpoint)))),
        ("keeping".into(), messages::encode(&keeping)),
        ("checkpoints".into(), messages::encode(&StoreMessage::Checkpoints(vec![checkpoint]))),
        ("chosen".into(), messages::encode(&StoreMessage::Chosen(Resumed::Lacking(2)))),
        ("serve-weights".into(), messages::encode(&SessionRequest::ServeWeights)),
        ("may-serve-weights".into(), messages::encode(&SessionRequest::MayServeWeights)),
        ("may-serve".into(), messages::encode(&SessionReply::MayServe(Some("no".into())))),
        ("serving-weights".into(), messages::encode(&serving)),
        ("weights-served".into(), messages::encode(&SessionReply::WeightsServed(nonce))),
        ("share-data".into(), messages::encode(&SessionRequest::ShareData(share_data))),
        ("attach".into(), messages::encode(&SessionRequest::Attach(vec![data_set_name]))),
        ("run-rows".into(), messages::encode(&SessionRequest::RunRows(run_rows))),
        ("attached".into(), messages::encode(&SessionReply::Attached(vec![data_set.clone()]))),
        ("not-attached".into(), messages::encode(&SessionReply::NotAttached(Some("no".into())))),
        ("keeping-data".into(), messages::encode(&StoreMessage::KeepingData { history, nonce: history })),
        ("data-sets".into(), messages::encode(&StoreMessage::DataSets(vec![data_set]))),
        ("lacks-data-sets".into(), messages::encode(&StoreMessage::LacksDataSets)),
        ("history".into(), messages::encode(&StoreMessage::History(history))),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Damage to what is refused at once finds nothing: after a change of messages, `covey-fuzz seed` writes them anew.
    #[test]
    fn the_kept_messages_are_those_of_this_version() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/messages");
        for (name, bytes) in seed() {
            assert!(std::fs::read(folder.join(&name)).is_ok_and(|kept| kept == bytes), "{name}: run `covey-fuzz seed`");
        }
    }
}
