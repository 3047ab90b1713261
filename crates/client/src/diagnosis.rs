//! Whether the parties that a client lists would serve it, found out by what opening a session checks: each party is asked for its part,
//! and what all said is compared as they would compare it.

use std::collections::{BTreeMap, BTreeSet};

use covey_messages::config::Peer;
use covey_messages::{
    COVEY_VERSION, Checked, Hex, Key, PartyHello, PartyStatus, Right, RingMessage, Terms, compare, one_line,
};
use covey_protocols::Options;
use covey_protocols::kind::ProtocolKind;
use covey_transport::ErrorKind;
use serde::Serialize;

use crate::{ClientConfig, ClientError, check, status};

/// What the parties that a client lists said, and what follows from it.
pub struct Diagnosis {
    /// What each party says about itself, in role order.
    pub parties: Vec<Result<PartyStatus, ClientError>>,
    /// What is wrong with a party, or with what it lets the client do.
    pub findings: Vec<Finding>,
    /// What each program's sessions would come to, by name.
    pub programs: Vec<ProgramDiagnosis>,
}

/// A line about a party.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The party's name; none for what all of them say together.
    pub party: Option<String>,
    /// What it is, and the way out.
    pub what: String,
    /// Whether sessions fail for it.
    pub grave: bool,
}

/// What sessions for a program would come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramDiagnosis {
    /// The model's name.
    pub name: String,
    /// The program.
    pub program: Hex<32>,
    /// The protocol that its weights are shared for.
    pub protocol: String,
    /// The version of the weights, where all parties have the same.
    pub weights_version: Option<Hex<16>>,
    /// Whether the parties would serve them.
    pub verdict: Verdict,
    /// Why they would not, or were not asked.
    pub findings: Vec<Finding>,
}

/// Whether the parties would open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// They would.
    Served,
    /// They would not.
    Refused,
    /// Not all could be asked, or it is not for the parties that the file lists, or not this client's.
    Unknown,
}

/// Asks all parties.
pub fn diagnose(config: &ClientConfig) -> Diagnosis {
    let parties = status(config);
    let said: Vec<(&Peer, &PartyStatus)> =
        config.parties.iter().zip(&parties).filter_map(|(peer, answer)| Some((peer, answer.as_ref().ok()?))).collect();
    let mut findings = rights(&said);
    for (peer, status) in &said {
        let of = |what: String, grave| Finding { party: Some(peer.name.clone()), what, grave };
        match (peer.dealer, status.dealer) {
            (false, true) => findings.push(of(
                "it is a dealer and holds no shares: list it with role = \"dealer\", and another as computing party"
                    .into(),
                true,
            )),
            (true, false) => findings.push(of(
                "it is a computing party and deals nothing: list a dealer, whose file says role = \"dealer\"".into(),
                true,
            )),
            _ => {}
        }
        findings.extend(status.problems.iter().map(|problem| of(one_line(&problem.what), problem.grave)));
    }
    findings.extend(lone_runs(config, &said));
    let held = said.iter().flat_map(|(_, status)| &status.programs);
    let held: BTreeSet<(String, Hex<32>, String)> =
        held.map(|held| (one_line(&held.name), held.program, one_line(&held.protocol))).collect();
    let programs = held.into_iter().map(|(name, program, protocol)| {
        let asked = Asked { config, answers: &parties, said: &said, program };
        let (verdict, weights_version, findings) = asked.diagnose(&protocol);
        ProgramDiagnosis { name, program, protocol, weights_version, verdict, findings }
    });
    let programs = programs.collect();
    Diagnosis { parties, findings, programs }
}

/// A client shares weights with all parties or opens sessions with all: one that may do neither can do nothing.
fn rights(said: &[(&Peer, &PartyStatus)]) -> Vec<Finding> {
    let everywhere = |right| said.iter().all(|(_, status)| status.may.contains(&right));
    if everywhere(Right::Infer) || (everywhere(Right::ShareWeights) && !somewhere(said, Right::Infer)) {
        return Vec::new();
    }
    let lacking = said.iter().filter(|(_, status)| !status.may.contains(&Right::Infer));
    let finding = |peer: &Peer| Finding {
        party: Some(peer.name.clone()),
        what: "this client may not infer there: have \"infer\" added to `may` of its [[client]] entry".into(),
        grave: true,
    };
    lacking.map(|(peer, _)| finding(peer)).collect()
}

fn somewhere(said: &[(&Peer, &PartyStatus)], right: Right) -> bool {
    said.iter().any(|(_, status)| status.may.contains(&right))
}

/// Stored runs that some of the parties have lost, and which serve nobody.
fn lone_runs(config: &ClientConfig, said: &[(&Peer, &PartyStatus)]) -> Option<Finding> {
    if said.len() < config.parties.len() {
        return None;
    }
    let has = |status: &PartyStatus, name: &Hex<16>| status.runs.iter().any(|runs| runs.name == *name);
    let everywhere = |name: &Hex<16>| said.iter().all(|(_, status)| has(status, name));
    let lone = said.iter().flat_map(|(_, status)| &status.runs).filter(|runs| !everywhere(&runs.name));
    let lone: BTreeMap<Hex<16>, u64> = lone.map(|runs| (runs.name, runs.left)).collect();
    let runs = lone.values().sum::<u64>();
    (runs > 0).then(|| Finding {
        party: None,
        what: format!(
            "{runs} stored run(s) are not at all parties and serve nobody: remove them (`covey store delete`)"
        ),
        grave: false,
    })
}

/// One program, and who is asked about it.
struct Asked<'a> {
    config: &'a ClientConfig,
    answers: &'a [Result<PartyStatus, ClientError>],
    said: &'a [(&'a Peer, &'a PartyStatus)],
    program: Hex<32>,
}

impl Asked<'_> {
    fn diagnose(&self, protocol: &str) -> (Verdict, Option<Hex<16>>, Vec<Finding>) {
        let Asked { config, program, .. } = *self;
        let of = |party: Option<&Peer>, what: String, grave| Finding {
            party: party.map(|peer| peer.name.clone()),
            what: one_line(&what),
            grave,
        };
        let answered = |peer: &Peer| self.said.iter().any(|(said, _)| said.name == peer.name);
        let is_absent = |(peer, answer): (&Peer, &Result<PartyStatus, ClientError>)| {
            let unreachable = |error: &ClientError| matches!(error, ClientError::Transport(error) if error.kind() == ErrorKind::Unreachable);
            peer.dealer && answer.as_ref().err().is_some_and(unreachable)
        };
        let without_dealer = config.parties.iter().zip(self.answers).any(is_absent);
        let kind: Result<ProtocolKind, String> = protocol.parse().map_err(|_| "this release does not know it".into());
        let checked = kind.and_then(|kind| {
            check(config, program, kind, (answered, without_dealer)).map_err(|problem| problem.to_string())
        });
        let checked = match checked {
            Ok(checked) => checked,
            Err(problem) => {
                let what = format!("not checked: its weights are shared for {protocol}, and {problem}");
                return (Verdict::Unknown, None, vec![of(None, what, false)]);
            }
        };
        let (mut hellos, mut findings, mut unasked) = (Vec::new(), Vec::new(), false);
        for (role, (peer, checked)) in config.parties.iter().zip(checked).enumerate() {
            match checked {
                Some(Ok(checked)) => hellos.push(self.hello(role, &peer.name, checked, protocol)),
                Some(Err(ClientError::Refused { reason, .. })) => findings.push(of(Some(peer), reason, true)),
                Some(Err(error)) => findings.push(of(Some(peer), error.to_string(), true)),
                None => unasked |= !(peer.dealer && without_dealer),
            }
        }
        if findings.is_empty() {
            findings.extend(compare(&hellos).err().map(|differ| of(None, differ, true)));
        }
        let weights_version = hellos.first().map(|hello| hello.weights_version);
        match (findings.is_empty(), unasked) {
            (false, _) => (Verdict::Refused, None, findings),
            (true, true) => {
                (Verdict::Unknown, weights_version, vec![of(None, "not all parties could be asked".into(), false)])
            }
            (true, false) => (Verdict::Served, weights_version, Vec::new()),
        }
    }

    /// What a party would tell the others of a session.
    fn hello(&self, role: usize, name: &str, checked: Checked, protocol: &str) -> PartyHello {
        let Checked { weights_version, public, round_bits } = checked;
        let terms = Terms {
            session: Hex([0; 16]),
            protocol: protocol.into(),
            ring: RingMessage::Pow2(32),
            program: self.program,
            options: Options::default().into(),
            parties: Vec::new(),
            client: self.config.name.clone(),
            silence_ms: 0,
            network: self.config.network,
            without_dealer: false,
        };
        PartyHello {
            // Those of the parties are said beside their names.
            covey: COVEY_VERSION.into(),
            role,
            name: name.into(),
            client: Key(self.config.identity.fingerprint()),
            weights_version,
            public,
            prepared: None,
            masks: None,
            round_bits,
            nonce: Hex([0; 32]),
            terms,
        }
    }
}
