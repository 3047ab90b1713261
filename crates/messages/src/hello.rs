//! What the parties of a session tell each other of it, and what they compare.

use serde::{Deserialize, Serialize};

use crate::{Hex, Key, Terms, one_line};

/// How a refusal begins whose cause may be gone in a moment: the owner of the weights is sharing them again, and some parties have
/// taken them up before others.
pub const WEIGHTS_DIFFER: &str = "the weights of the program differ between parties";

/// How a refusal ends whose cause may be gone in a moment as well: the owner shared the weights again between two looks at them.
pub const WEIGHTS_REPLACED: &str = "were replaced here meanwhile: open the session again";

/// What one party of a session tells the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartyMessage {
    /// What it understands the session to be.
    Hello(Box<PartyHello>),
    /// It cannot take part.
    Refused {
        /// Why, in one line.
        reason: String,
    },
}

/// Everything a session is bound to, as one party sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartyHello {
    /// Its release.
    pub covey: String,
    /// Its role.
    pub role: usize,
    /// Its own name.
    pub name: String,
    /// The client's key.
    pub client: Key,
    /// Which version of the weights it holds.
    pub weights_version: Hex<16>,
    /// Of the words of all public parameters, as it holds them.
    pub public: Hex<32>,
    /// The session in which it prepared them, where it still has what it made then.
    pub prepared: Option<Hex<16>>,
    /// The session whose masks of them it keeps on disk.
    pub masks: Option<Hex<16>>,
    /// Low bits that outputs lose before they open to the client.
    pub round_bits: u32,
    /// Drawn for this session: no earlier one has the same name, whatever id its client chose.
    pub nonce: Hex<32>,
    /// What the client asked it for.
    pub terms: Terms,
}

/// Refuses the first item on which the parties differ, naming each one's value.
///
/// # Errors
/// One line: the item, the values, and the way out.
pub fn compare(hellos: &[PartyHello]) -> Result<(), String> {
    type Item = (&'static str, fn(&PartyHello) -> String, &'static str);
    /// Digits of a hash that are printed, where they tell the values apart.
    const SHORT: usize = 12;
    const SAME_CLIENT: &str = "open the session again with one client";
    let items: [Item; 14] = [
        ("Covey release", |h| h.covey.clone(), "install the same release on all machines"),
        ("protocol", |h| h.terms.protocol.clone(), SAME_CLIENT),
        ("ring", |h| h.terms.ring.to_string(), SAME_CLIENT),
        ("program", |h| h.terms.program.to_string(), "share the weights of one program with all parties"),
        ("weights of the program", |h| h.weights_version.to_string(), "share them again"),
        ("public parameters", |h| h.public.to_string(), "share the weights again, to all parties at once"),
        ("parties", |h| format!("{:?}", h.terms.parties), "list the same parties in the same order everywhere"),
        ("dealer", |h| if h.terms.without_dealer { "none" } else { "one" }.into(), SAME_CLIENT),
        ("client", |h| format!("{} {}", h.terms.client, h.client.0), SAME_CLIENT),
        ("output rounding", |h| format!("{} bits", h.round_bits), "give the client the same round_bits at every party"),
        ("options", |h| h.terms.options.to_string(), SAME_CLIENT),
        ("time-out", |h| format!("{} ms", h.terms.silence_ms), SAME_CLIENT),
        ("emulated network", |h| format!("{:?}", h.terms.network), SAME_CLIENT),
        ("session", |h| h.terms.session.to_string(), SAME_CLIENT),
    ];
    for (what, value, way_out) in items {
        let values: Vec<String> = hellos.iter().map(value).collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            let is_hash = what == "program" || what == "public parameters" || what.starts_with("weights");
            let short: Vec<&str> = values.iter().map(|value| value.get(..SHORT).unwrap_or(value)).collect();
            let tells = is_hash && short.windows(2).any(|pair| pair[0] != pair[1]);
            let shown: Vec<&str> = if tells { short } else { values.iter().map(String::as_str).collect() };
            let each =
                hellos.iter().zip(&shown).map(|(hello, value)| format!("P{} ({}) has {value}", hello.role, hello.name));
            let each: Vec<String> = each.collect();
            return Err(one_line(&format!(
                "the {what} differ{} between parties: {}; {way_out}",
                if what.starts_with("weights") || what == "public parameters" || what == "parties" || what == "options"
                {
                    ""
                } else {
                    "s"
                },
                each.join(", ")
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use covey_protocols::Options;

    use super::*;
    use crate::{NetworkMessage, RingMessage};

    fn hello(role: usize) -> PartyHello {
        let key = Key("covey:".to_string().chars().chain("0".repeat(64).chars()).collect::<String>().parse().unwrap());
        let terms = Terms {
            session: Hex([1; 16]),
            protocol: "trio".into(),
            ring: RingMessage::Pow2(32),
            program: Hex([2; 32]),
            options: Options::default().into(),
            parties: vec![key],
            without_dealer: false,
            client: "data".into(),
            silence_ms: 1000,
            network: NetworkMessage::default(),
        };
        PartyHello {
            covey: "1".into(),
            role,
            name: format!("party-{role}"),
            client: key,
            weights_version: Hex([3; 16]),
            public: Hex([4; 32]),
            prepared: None,
            masks: None,
            round_bits: 0,
            nonce: Hex([role as u8; 32]),
            terms,
        }
    }

    #[test]
    fn hashes_that_agree_in_48_bits_differ() {
        let line = |other: PartyHello| compare(&[hello(0), other]).err();
        assert_eq!(line(hello(1)), None);
        let (mut program, mut weights, mut first) = (hello(1), hello(1), hello(1));
        program.terms.program.0[31] ^= 1;
        weights.weights_version.0[6] ^= 0x80;
        first.terms.program.0[0] ^= 1;
        // Where the printed digits are the same, all are.
        let said = line(program).expect("another program");
        let whole = [hello(0).terms.program.to_string(), format!("{}03;", "02".repeat(31))];
        assert!(said.contains("the program differs") && whole.iter().all(|hash| said.contains(hash)), "{said}");
        assert!(line(weights).expect("other weights").starts_with(WEIGHTS_DIFFER));
        let said = line(first).expect("another program");
        assert!(said.contains("has 020202020202, P1") && said.contains("has 030202020202;"), "{said}");
    }
}
