//! Protocol and ring, chosen once: everything below the choice is compiled for it.

use std::fmt;
use std::str::FromStr;

use covey_operators::Requirements;
use covey_program::{Kind, Program, ValueId};
use covey_protocols::beaver::Beaver;
use covey_protocols::clear::Clear;
use covey_protocols::quad::Quad;
use covey_protocols::served::{Part, Served, Sharing};
use covey_protocols::trio::Trio;
use covey_protocols::two_party::TwoParty;
use covey_protocols::{Costs, PARTIES};
use covey_ring::Ring;

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolKind {
    /// Plain integers in one process: the specification.
    Clear,
    /// Three parties, semi-honest, one corrupted.
    Trio,
    /// Four parties, one malicious, with abort.
    Quad,
    /// Two parties, semi-honest, no dealer.
    TwoParty,
    /// Any number of parties and a dealer, semi-honest, all but one party corrupted.
    Beaver,
}

impl ProtocolKind {
    /// All of them.
    pub const ALL: [ProtocolKind; 5] =
        [ProtocolKind::Clear, ProtocolKind::Trio, ProtocolKind::Quad, ProtocolKind::TwoParty, ProtocolKind::Beaver];

    /// Name on the command line and in the handshake.
    pub fn name(self) -> &'static str {
        match self {
            ProtocolKind::Clear => Clear::NAME,
            ProtocolKind::Trio => <Trio<u32> as Costs>::NAME,
            ProtocolKind::Quad => <Quad<u32> as Costs>::NAME,
            ProtocolKind::TwoParty => <TwoParty<u32> as Costs>::NAME,
            ProtocolKind::Beaver => <Beaver<u32> as Costs>::NAME,
        }
    }

    /// Those that run among servers.
    pub fn served() -> impl Iterator<Item = ProtocolKind> {
        ProtocolKind::ALL.into_iter().filter(|kind| *kind != ProtocolKind::Clear)
    }

    /// How weights are shared among servers, of which `parties` compute where the protocol takes any number; `None` for what runs in
    /// one process.
    pub fn sharing(self, parties: usize) -> Option<Sharing> {
        match self {
            ProtocolKind::Clear => None,
            ProtocolKind::Trio => Some(Trio::<u32>::sharing(parties)),
            ProtocolKind::Quad => Some(Quad::<u32>::sharing(parties)),
            ProtocolKind::TwoParty => Some(TwoParty::<u32>::sharing(parties)),
            ProtocolKind::Beaver => Some(Beaver::<u32>::sharing(parties)),
        }
    }

    /// Who shares each key of `role`, of so many ([`Served::key_holders`]).
    pub fn key_holders(self, role: usize, roles: usize) -> Vec<Option<Vec<usize>>> {
        match self {
            ProtocolKind::Clear => Vec::new(),
            ProtocolKind::Trio => Trio::<u32>::key_holders(role, roles),
            ProtocolKind::Quad => Quad::<u32>::key_holders(role, roles),
            ProtocolKind::TwoParty => TwoParty::<u32>::key_holders(role, roles),
            ProtocolKind::Beaver => Beaver::<u32>::key_holders(role, roles),
        }
    }

    /// Roles: of the computing parties, and the dealer's where there is one.
    pub fn roles(self, parties: usize) -> usize {
        self.sharing(parties).map_or(1, |sharing| sharing.roles.len())
    }

    /// [`covey_protocols::Options::parties`] and how weights are shared where `listed` roles are listed: all of them, or those alone
    /// that are not open to clients. `None` for a number that the protocol does not take.
    pub fn listed(self, listed: usize) -> Option<(usize, Sharing)> {
        PARTIES
            .filter_map(|parties| Some((parties, self.sharing(parties)?)))
            .find(|(_, sharing)| listed == sharing.roles.len() || listed == sharing.pinned())
    }

    /// Whether a dealer takes part beside the computing parties.
    pub fn has_dealer(self) -> bool {
        self.sharing(*PARTIES.start()).is_some_and(|sharing| sharing.roles.contains(&Part::Dealer))
    }

    /// How many parties it takes, in words.
    pub fn takes(self) -> String {
        let dealer = if self.has_dealer() { " and a dealer" } else { "" };
        match (self.roles(*PARTIES.start()), self.roles(*PARTIES.end())) {
            (least, most) if least == most => format!("{least}{dealer}"),
            _ => format!("{} to {}{dealer}", PARTIES.start(), PARTIES.end()),
        }
    }
}

impl fmt::Display for ProtocolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A protocol nobody has heard of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protocol '{0}' is not known: use clear, trio, quad, two-party or beaver")]
pub struct UnknownProtocol(pub String);

impl FromStr for ProtocolKind {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        let known = ProtocolKind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownProtocol(name.to_string()))
    }
}

/// Code that runs on whatever protocol and ring were chosen.
pub trait Visitor {
    /// What it gives.
    type Output;
    /// On the clear protocol.
    fn clear(self) -> Self::Output;
    /// On a protocol among servers.
    fn served<P: Served>(self) -> Self::Output;
}

/// Runs `visitor` on the chosen protocol, compiled for its ring.
///
/// # Errors
/// If the protocol does not compute in the ring.
pub fn choose<V: Visitor>(kind: ProtocolKind, ring: Ring, visitor: V) -> Result<V::Output, Unsupported> {
    match (kind, ring) {
        (ProtocolKind::Clear, _) => Ok(visitor.clear()),
        (ProtocolKind::Trio, Ring::Pow2(32)) => Ok(visitor.served::<Trio<u32>>()),
        (ProtocolKind::Trio, Ring::Pow2(64)) => Ok(visitor.served::<Trio<u64>>()),
        (ProtocolKind::Quad, Ring::Pow2(32)) => Ok(visitor.served::<Quad<u32>>()),
        (ProtocolKind::Quad, Ring::Pow2(64)) => Ok(visitor.served::<Quad<u64>>()),
        (ProtocolKind::TwoParty, ring) if (16..=32).contains(&ring.bits()) => Ok(visitor.served::<TwoParty<u32>>()),
        (ProtocolKind::TwoParty, ring) if (33..=64).contains(&ring.bits()) => Ok(visitor.served::<TwoParty<u64>>()),
        (ProtocolKind::Beaver, Ring::Pow2(32)) => Ok(visitor.served::<Beaver<u32>>()),
        (ProtocolKind::Beaver, Ring::Pow2(64)) => Ok(visitor.served::<Beaver<u64>>()),
        (ProtocolKind::Trio | ProtocolKind::Quad | ProtocolKind::Beaver, _) => {
            Err(Unsupported::Ring { protocol: kind.name(), ring, rings: "32 or --ring 64" })
        }
        (ProtocolKind::TwoParty, _) => Err(Unsupported::Ring { protocol: kind.name(), ring, rings: "16 to 64" }),
    }
}

/// What a protocol cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The ring.
    #[error("{protocol} does not compute in {ring}: compile with --ring {rings}")]
    Ring {
        /// The protocol.
        protocol: &'static str,
        /// The program's ring.
        ring: Ring,
        /// Those it computes in, as an option of `compile`.
        rings: &'static str,
    },
    /// An operation.
    #[error("node '{node}': {protocol} does not support {what}")]
    Node {
        /// The node.
        node: String,
        /// The protocol.
        protocol: &'static str,
        /// The operation, with the way out.
        what: String,
    },
}

impl Unsupported {
    pub(crate) fn ring(protocol: &'static str, program: &Program) -> Self {
        Unsupported::Ring { protocol, ring: program.ring(), rings: "of the protocol's" }
    }
}

/// Refuses, before anything is sent, what `kind` cannot run, naming the first such node.
pub fn supports(kind: ProtocolKind, program: &Program) -> Result<(), Unsupported> {
    check_states(program, kind.name())?;
    choose(kind, program.ring(), Support { program, protocol: kind.name() })?
}

/// Refuses programs that write states, which no protocol does yet.
pub(crate) fn check_states(program: &Program, protocol: &'static str) -> Result<(), Unsupported> {
    let writes = |node: &&covey_program::Node| node.outputs.iter().any(|&id| program.value(id).kind == Kind::State);
    match program.nodes().iter().find(writes) {
        None => Ok(()),
        Some(node) => Err(Unsupported::Node {
            node: node.name.clone(),
            protocol,
            what: "writing a state; compile the model for inference".into(),
        }),
    }
}

struct Support<'a> {
    program: &'a Program,
    protocol: &'static str,
}

impl Visitor for Support<'_> {
    type Output = Result<(), Unsupported>;

    fn clear(self) -> Self::Output {
        Ok(())
    }

    fn served<P: Served>(self) -> Self::Output {
        supported_by::<P>(self.program, self.protocol)
    }
}

fn supported_by<P: Served>(program: &Program, protocol: &'static str) -> Result<(), Unsupported> {
    let ring = program.ring();
    let bits = ring.bits();
    for node in program.nodes() {
        let refuse = |what: String| Err(Unsupported::Node { node: node.name.clone(), protocol, what });
        let value = |ids: &[ValueId]| program.value(ids[0]);
        let Requirements { shift, compared, division } =
            node.op.requirements(value(&node.inputs), value(&node.outputs));
        if shift.is_some_and(|shift| !P::admits_rounding(shift.rounding)) {
            return refuse("probabilistic shifts; compile with --truncation exact or ulp".into());
        }
        if let Some(shift) = shift.filter(|&shift| !P::admits_shift(ring, shift)) {
            return refuse(format!(
                "shifting values of {} bits by {} in {ring}; compile with a larger ring or a smaller scale",
                shift.bound, shift.bits
            ));
        }
        if let Some(compared) = compared.filter(|&compared| compared > bits - 1) {
            return refuse(format!(
                "comparing values of {compared} bits in {ring}, where at most {} are allowed; compile with a larger ring \
                 or a smaller scale",
                bits - 1
            ));
        }
        if let Some((divisor, bound)) = division
            && !P::admits_division(ring, divisor, bound)
        {
            return refuse(format!("division by {divisor}; compile with --division mul-shift"));
        }
    }
    Ok(())
}
