//! What clients and parties say to each other outside the protocol: JSON in control frames while a session is set up,
//! and on the control stream while it runs. `docs/three-hosts.md` tells the story, this crate is the reference.
//! Connections are opened and closed by those who use it.

pub mod config;
mod data_sets;
mod fields;
mod hello;
mod running;
mod setup;
mod status;
pub mod wire;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use data_sets::{
    DataSet, DataSetList, DataSetName, DataSetUse, MAX_DATA_SETS, MAX_LISTED, MAX_NAMED, MAX_ROWS, OWNER_ENDS, RowsRun,
    ShareData, TOLD, check_data_set_name,
};
pub use fields::{AdderMessage, Hex, IN_FLIGHT, Key, NetworkMessage, OptionsMessage, ProfileMessage, RingMessage};
pub use hello::{PartyHello, PartyMessage, WEIGHTS_DIFFER, WEIGHTS_REPLACED, compare};
pub use running::{
    Checkpoint, Done, Fill, Offer, PhaseMessage, Resumed, Run, SessionReply, SessionRequest, StoreMessage, Usage,
};
pub use setup::{Infer, Join, Proceed, Reply, Request, RoleOffer, SEED, ShareWeights, TakeRole, Terms, payload_bytes};
pub use status::{
    Check, Checked, Deleted, HeldProgram, PartyStatus, Problem, ProgramUse, Right, RunsStatus, StoreStatus,
};

/// Version of these messages, and of what the protocols exchange. Both sides must speak the same.
pub const WIRE_VERSION: u32 = 26;

/// Why a session ends of which a party is stopped, in that party's words: it may come back.
pub const STOPPED: &str = "was stopped by its operator";

/// The release, which parties of one session must share: message layouts of protocols follow it.
pub const COVEY_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Longest control message of the set-up, in bytes.
pub const MAX_CONTROL: usize = 64 << 10;
/// Longest message on the control stream of a running session, in bytes.
pub const MAX_SESSION_MESSAGE: usize = 16 << 20;
/// Longest piece of an upload, in bytes.
pub const MAX_CHUNK: usize = 1 << 20;
/// The stream of [`SessionRequest`] and [`SessionReply`].
pub const CONTROL_STREAM: u32 = 0;
/// The stream of the protocol's first lane.
pub const PROTOCOL_STREAM: u32 = 1;
/// The stream on which what later sessions will use up is made.
pub const STORE_STREAM: u32 = 2;

/// The protocol's stream of lane number `lane`.
pub fn lane_stream(lane: usize) -> u32 {
    match lane {
        0 => PROTOCOL_STREAM,
        _ => STORE_STREAM + lane as u32,
    }
}

/// The lane that run number `run` belongs to: what was preprocessed for it lies there.
pub fn lane_of(run: u64, lanes: usize) -> usize {
    (run % lanes.max(1) as u64) as usize
}

/// Longest name of a party, client or data set, in characters.
pub const MAX_NAME: usize = 32;

/// A message with the version it is written in.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    version: u32,
    body: T,
}

/// Why a control message is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Another version.
    #[error(
        "it speaks version {0} of Covey's messages and this side version {WIRE_VERSION}: install the same Covey release"
    )]
    Version(u32),
    /// Not a message of this kind.
    #[error("broke the format: a control message that cannot be read; install the same Covey release on both sides")]
    Malformed,
}

/// The bytes of a message.
pub fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    // Maps with string keys and plain values only: serialising them cannot fail.
    serde_json::to_vec(&Envelope { version: WIRE_VERSION, body }).unwrap_or_default()
}

/// The message in `bytes`.
///
/// # Errors
/// Another version, or no message of this kind.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    // The version first: another version's body may look otherwise.
    let Version { version } = serde_json::from_slice(bytes).map_err(|_| MessageError::Malformed)?;
    if version != WIRE_VERSION {
        return Err(MessageError::Version(version));
    }
    let envelope: Envelope<T> = serde_json::from_slice(bytes).map_err(|_| MessageError::Malformed)?;
    Ok(envelope.body)
}

/// One line of words from another machine, safe to print.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(600).collect()
}

/// What a name must be, for those whose name is not ([`is_name`]).
pub fn name_rule() -> String {
    format!("a name has 1 to {MAX_NAME} printable characters, and not blanks alone")
}

/// Whether `name` can stand in one-line messages.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control) && !name.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_and_rubbish_are_told_apart() {
        let bytes = encode(&Request::Status);
        assert!(matches!(decode::<Request>(&bytes), Ok(Request::Status)));
        let of = |version: u32, rest: &str| format!("{{\"version\":{version},\"body\":{rest}}}").into_bytes();
        let newer = of(WIRE_VERSION + 1, "\"status\"");
        assert_eq!(decode::<Request>(&newer).unwrap_err(), MessageError::Version(WIRE_VERSION + 1));
        let (rubbish, extra) = (of(WIRE_VERSION, "\"rubbish\""), of(WIRE_VERSION, "\"status\",\"more\":1"));
        let list = format!("[{WIRE_VERSION}]").into_bytes();
        for rubbish in [&b""[..], b"{}", &list, b"\xff\xfe", &rubbish, &extra, &bytes[1..]] {
            assert_eq!(decode::<Request>(rubbish).unwrap_err(), MessageError::Malformed);
        }
    }

    #[test]
    fn names_on_the_wire_stay() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (weights_version, program) = (Hex([1; 16]), Hex([2; 32]));
        let role = TakeRole { protocol: "two-party".into(), program, role: 1, has: Some(weights_version) };
        assert!(
            text(encode(&Request::TakeRole(role)))
                .contains("{\"take-role\":{\"protocol\":\"two-party\",\"program\":\"02")
        );
        let offer = text(encode(&Reply::RoleOffer(RoleOffer { weights_version, round_bits: 3, payload_bytes: 0 })));
        assert!(
            offer.contains("{\"role-offer\":{\"weights_version\":\"01")
                && offer.contains("\"round_bits\":3,\"payload_bytes\":0")
        );
        let runs = text(encode(&StoreMessage::Stored { any: true, gone: None }));
        assert!(runs.ends_with("\"body\":{\"stored\":{\"any\":true,\"gone\":null}}}"));
    }

    proptest! {
        #[test]
        fn nothing_panics_on_what_others_send(bytes: Vec<u8>, flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4)) {
            let _ = decode::<Request>(&bytes);
            let mut valid = encode(&SessionRequest::Run(Run { phase: PhaseMessage::Joint, batch: 1, inference: 2, count: 1, continues: false, ends: false }));
            for (at, value) in flips {
                let at = at % valid.len();
                valid[at] = value;
            }
            let _ = decode::<SessionRequest>(&valid);
            let _ = decode::<SessionReply>(&valid);
            prop_assert!(one_line(&String::from_utf8_lossy(&bytes)).chars().all(|c| !c.is_control()));
        }
    }
}
