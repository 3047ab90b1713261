//! What a protocol among servers can run, and code that runs on whichever was chosen.

use covey_operators::Requirements;
use covey_program::{Kind, Program, ValueId};
use covey_protocols::clear::Clear;
use covey_protocols::cost::CostModel;
use covey_protocols::kind::{Properties, ProtocolKind, ServedProtocol, ServedWords};
use covey_ring::{Ring, Word};

/// Code that runs on whatever protocol and ring were chosen.
pub trait Visitor {
    /// What it gives.
    type Output;
    /// On the clear protocol.
    fn clear(self) -> Self::Output;
    /// On a protocol among servers.
    fn served<W: Word>(self, protocol: &dyn ServedProtocol<W>) -> Self::Output;
}

/// Runs `visitor` on the chosen protocol, for its ring.
///
/// # Errors
/// If the protocol does not compute in the ring.
pub fn choose<V: Visitor>(kind: ProtocolKind, ring: Ring, visitor: V) -> Result<V::Output, Unsupported> {
    Ok(match served(kind, ring)? {
        None => visitor.clear(),
        Some(ServedWords::Narrow(protocol)) => visitor.served(protocol),
        Some(ServedWords::Wide(protocol)) => visitor.served(protocol),
    })
}

/// What the gates of a protocol cost in `ring`.
///
/// # Errors
/// If the protocol does not compute in the ring.
pub fn cost_model(kind: ProtocolKind, ring: Ring) -> Result<CostModel, Unsupported> {
    Ok(served(kind, ring)?.map_or_else(CostModel::of::<Clear>, |protocol| protocol.properties().costs))
}

/// The protocol among servers; `None` for what runs in one process.
pub(crate) fn served(kind: ProtocolKind, ring: Ring) -> Result<Option<ServedWords>, Unsupported> {
    match kind.served(ring) {
        None if kind != ProtocolKind::Clear => {
            Err(Unsupported::Ring { protocol: kind.name(), ring, rings: kind.rings() })
        }
        served => Ok(served),
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
    /// Outputs rounded by so many bits.
    #[error(
        "round_bits is {round_bits}, and {protocol} rounds output '{output}' in {ring} by {most}: lower round_bits, which parties set in the \
         client's entry, or compile with a larger ring"
    )]
    Rounding {
        /// The protocol.
        protocol: &'static str,
        /// The output.
        output: String,
        /// The program's ring.
        ring: Ring,
        /// Bits that the output was to lose.
        round_bits: u32,
        /// Those that it can lose.
        most: String,
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
    match served(kind, program.ring())? {
        None => Ok(()),
        Some(served) => supported_by(program, kind.name(), &served.properties()),
    }
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

fn supported_by(program: &Program, protocol: &'static str, properties: &Properties) -> Result<(), Unsupported> {
    let ring = program.ring();
    let bits = ring.bits();
    for node in program.nodes() {
        let refuse = |what: String| Err(Unsupported::Node { node: node.name.clone(), protocol, what });
        let value = |ids: &[ValueId]| program.value(ids[0]);
        let Requirements { shift, compared, division } =
            node.op.requirements(value(&node.inputs), value(&node.outputs));
        if shift.is_some_and(|shift| !(properties.admits_rounding)(shift.rounding)) {
            return refuse("probabilistic shifts; compile with --truncation exact or ulp".into());
        }
        if let Some(shift) = shift.filter(|&shift| !(properties.admits_shift)(ring, shift)) {
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
            && !(properties.admits_division)(ring, divisor, bound)
        {
            return refuse(format!("division by {divisor}; compile with --division mul-shift"));
        }
    }
    Ok(())
}
