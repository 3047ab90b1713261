//! What the fields of messages hold, as text and plain numbers.

use std::fmt;
use std::str::FromStr;

use covey_program::ProgramHash;
use covey_protocols::circuits::Adder;
use covey_protocols::{LANES, LinearMethod, NetworkProfile, Options, PARTIES, Pipelines, Roles};
use covey_ring::{Ring, RingError};
use covey_transport::Fingerprint;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> FromStr for Hex<N> {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.as_bytes();
        if digits.len() != 2 * N || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err("not the right number of lower-case hexadecimal digits");
        }
        let value = |digit: u8| if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 };
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0]) << 4 | value(pair[1]);
        }
        Ok(Hex(bytes))
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl<const N: usize> Hex<N> {
    /// Fresh random bytes from the operating system.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; N];
        getrandom::fill(&mut bytes)?;
        Ok(Hex(bytes))
    }

    /// The first 12 digits, for messages.
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }
}

impl From<ProgramHash> for Hex<32> {
    fn from(hash: ProgramHash) -> Self {
        Hex(hash.0)
    }
}

/// A pinned key, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub Fingerprint);

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Key).map_err(D::Error::custom)
    }
}

/// A ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingMessage {
    /// Z_2^l.
    Pow2(u32),
    /// Z_n.
    Odd(u64),
}

impl From<Ring> for RingMessage {
    fn from(ring: Ring) -> Self {
        match ring {
            Ring::Pow2(bits) => RingMessage::Pow2(bits),
            Ring::Odd(modulus) => RingMessage::Odd(modulus),
        }
    }
}

impl TryFrom<RingMessage> for Ring {
    type Error = RingError;

    fn try_from(ring: RingMessage) -> Result<Ring, RingError> {
        match ring {
            RingMessage::Pow2(bits) => Ring::pow2(bits),
            RingMessage::Odd(modulus) => Ring::odd(modulus),
        }
    }
}

impl fmt::Display for RingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingMessage::Pow2(bits) => write!(f, "Z_2^{bits}"),
            RingMessage::Odd(modulus) => write!(f, "Z_{modulus}"),
        }
    }
}

/// How comparisons are done, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdderMessage(pub Adder);

impl Serialize for AdderMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for AdderMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(AdderMessage).map_err(D::Error::custom)
    }
}

/// How two parties multiply by weights, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearMessage(pub LinearMethod);

impl Serialize for LinearMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for LinearMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(LinearMessage).map_err(D::Error::custom)
    }
}

/// Who has which role on which lane, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolesMessage(pub Roles);

impl Serialize for RolesMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for RolesMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(RolesMessage).map_err(D::Error::custom)
    }
}

/// The network that an automatic choice is made for. It slows nothing down: see [`NetworkMessage`] for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileMessage {
    /// One-way latency in microseconds.
    pub latency_us: u32,
    /// Bits per second and direction.
    pub bandwidth: u64,
}

/// Most elements of one gate in flight. All of them are sent before any is received, so they have to fit what links hold: 128 MiB of
/// 64-bit words, of the 320 MiB that a sender's queue and a receiver's take.
pub const IN_FLIGHT: usize = 1 << 24;

/// Bits that an approximate comparison may read: the sign and one more at least.
pub const KEY_BITS: std::ops::RangeInclusive<u32> = 2..=64;

/// A protocol's run-time choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionsMessage {
    /// How comparisons are done.
    pub adder: AdderMessage,
    /// How two parties multiply by weights.
    pub linear: LinearMessage,
    /// Layers by lattice encryption multiply masks while preprocessing.
    pub preprocess_linear: bool,
    /// What `auto` chooses for.
    pub profile: ProfileMessage,
    /// Elements a tile.
    pub tile: u32,
    /// Tiles in flight.
    pub window: u32,
    /// Bits that an approximate comparison reads; `None` for exact ones.
    pub key_bits: Option<u32>,
    /// Computing parties, where the protocol takes any number.
    pub parties: u32,
    /// Inferences under way at a time.
    pub lanes: u32,
    /// Who has which role on which of them.
    pub roles: RolesMessage,
    /// Weights are opened once, and not in every run.
    pub inter_linear: bool,
    /// Tiles travel while others are computed.
    pub inner_layer: bool,
}

impl From<Options> for OptionsMessage {
    fn from(options: Options) -> Self {
        let NetworkProfile { latency_us, bits_per_second } = options.network;
        let count = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        OptionsMessage {
            adder: AdderMessage(options.adder),
            linear: LinearMessage(options.linear),
            preprocess_linear: options.preprocess_linear,
            profile: ProfileMessage { latency_us, bandwidth: bits_per_second },
            tile: count(options.tile),
            window: count(options.window),
            key_bits: options.key_bits,
            parties: count(options.parties),
            lanes: count(options.lanes),
            roles: RolesMessage(options.roles),
            inter_linear: options.pipelines.inter_linear,
            inner_layer: options.pipelines.inner_layer,
        }
    }
}

impl OptionsMessage {
    /// The options, if a party may be asked for them.
    ///
    /// # Errors
    /// Names what is out of range.
    pub fn checked(self) -> Result<Options, String> {
        if !(1..=1 << 23).contains(&self.tile) {
            return Err(format!("tiles of {} elements: use 1 to {}", self.tile, 1 << 23));
        }
        if !(1..=4096).contains(&self.window) {
            return Err(format!("{} tiles in flight: use 1 to 4096", self.window));
        }
        if self.tile as usize * self.window as usize > IN_FLIGHT {
            let (tile, window) = (self.tile, self.window);
            return Err(format!("{window} tiles of {tile} elements in flight: use at most {IN_FLIGHT} elements"));
        }
        if let Some(bits) = self.key_bits.filter(|bits| !KEY_BITS.contains(bits)) {
            return Err(format!("comparisons of {bits} key bits: use {} to {}", KEY_BITS.start(), KEY_BITS.end()));
        }
        let parties = self.parties as usize;
        if !PARTIES.contains(&parties) {
            return Err(format!("{parties} computing parties: use {} to {}", PARTIES.start(), PARTIES.end()));
        }
        if !LANES.contains(&(self.lanes as usize)) {
            return Err(format!("{} inferences at a time: use {} to {} lanes", self.lanes, LANES.start(), LANES.end()));
        }
        if self.roles.0 == Roles::Turned && self.lanes < 2 {
            return Err("roles that turn from lane to lane on 1 lane: use 2 or more".into());
        }
        if self.profile.bandwidth == 0 {
            return Err("a network profile of 0 bits a second".into());
        }
        Ok(Options {
            adder: self.adder.0,
            linear: self.linear.0,
            preprocess_linear: self.preprocess_linear,
            network: NetworkProfile { latency_us: self.profile.latency_us, bits_per_second: self.profile.bandwidth },
            tile: self.tile as usize,
            window: self.window as usize,
            key_bits: self.key_bits,
            parties,
            lanes: self.lanes as usize,
            roles: self.roles.0,
            pipelines: Pipelines { inter_linear: self.inter_linear, inner_layer: self.inner_layer },
        })
    }
}

impl fmt::Display for OptionsMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OptionsMessage {
            adder: AdderMessage(adder),
            linear,
            profile,
            tile,
            window,
            key_bits,
            parties,
            lanes,
            roles,
            ..
        } = self;
        let ProfileMessage { latency_us, bandwidth } = profile;
        write!(f, "adder {} for {latency_us} us and {bandwidth} bit/s, tile {tile}, window {window}", adder.name())?;
        let when = if self.preprocess_linear { " while preprocessing" } else { "" };
        write!(f, ", linear layers by {}{when}, {parties} parties, {lanes} lanes", linear.0.name())?;
        write!(f, ", roles {}", roles.0.name())?;
        for (on, name) in [(self.inter_linear, "inter-linear"), (self.inner_layer, "inner-layer")] {
            write!(f, ", {name} pipeline {}", if on { "on" } else { "off" })?;
        }
        key_bits.map_or(Ok(()), |bits| write!(f, ", {bits} key bits"))
    }
}

/// Emulation of a slower network on every link of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkMessage {
    /// One-way latency in microseconds.
    pub latency_us: u64,
    /// Bits per second and direction; `None` is no limit.
    pub bandwidth: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        for adder in Adder::ALL {
            let network = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
            let pipelines = Pipelines { inter_linear: false, inner_layer: true };
            let (key_bits, parties, lanes) = (Some(8), 5, 3);
            let (linear, preprocess_linear, tile, window) = (LinearMethod::Lattice, true, 128, 3);
            let options = Options {
                adder,
                linear,
                preprocess_linear,
                network,
                tile,
                window,
                key_bits,
                parties,
                lanes,
                roles: Roles::Turned,
                pipelines,
            };
            let message = OptionsMessage::from(options);
            assert_eq!(message.checked(), Ok(options));
            let text = serde_json::to_string(&message).unwrap();
            assert!(text.contains(&format!("\"adder\":\"{}\"", adder.name())), "{text}");
            assert_eq!(serde_json::from_str::<OptionsMessage>(&text).unwrap(), message);
        }
        let mut message = OptionsMessage::from(Options::default());
        message.profile.bandwidth = 0;
        assert!(message.checked().is_err());
    }

    #[test]
    fn hex_round_trips_and_refuses_near_misses() {
        let id = Hex([0x0a, 0xff]);
        assert_eq!(id.to_string(), "0aff");
        assert_eq!("0aff".parse::<Hex<2>>(), Ok(id));
        for wrong in ["0AFF", "0af", "0afff", "0agg", ""] {
            assert!(wrong.parse::<Hex<2>>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let options = OptionsMessage::from(Options::default());
        assert_eq!(options.checked().unwrap(), Options::default());
        assert!(OptionsMessage { tile: 0, ..options }.checked().is_err());
        assert!(OptionsMessage { window: 0, ..options }.checked().is_err());
        assert!(OptionsMessage { tile: u32::MAX, ..options }.checked().is_err());
        assert!(OptionsMessage { key_bits: Some(1), ..options }.checked().is_err());
        assert!(OptionsMessage { key_bits: Some(65), ..options }.checked().is_err());
        let much = OptionsMessage { tile: 1 << 14, window: 1025, ..options };
        assert!(much.checked().unwrap_err().contains("1025 tiles of 16384 elements in flight"));
        assert!(OptionsMessage { window: 1024, ..much }.checked().is_ok());
        for lanes in [0, 9, u32::MAX] {
            assert!(OptionsMessage { lanes, ..options }.checked().unwrap_err().contains("use 1 to 8 lanes"));
        }
        for parties in [0, 1, 9, u32::MAX] {
            assert!(OptionsMessage { parties, ..options }.checked().unwrap_err().contains("use 2 to 8"));
        }
    }
}
