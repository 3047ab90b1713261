//! How the roles of a session set the same stored material aside, whatever it is: once all have the client's request, P0 reserves
//! what comes next and offers it, all others claim the same, and it is used once every role has told every other that it has.

use covey_messages::{Hex, Offer, StoreMessage, one_line, wire};
use covey_store::BatchName;
use covey_transport::{Endpoint, Network, PeerId};

use crate::others::Others;

/// The role that offers.
pub(crate) const OFFERS: PeerId = 0;

/// Why material that is offered cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Later material was used before it: it is lost, and the next serves.
    Overtaken(String),
    /// The roles disagree on the batch: nothing of it serves any more.
    Batch(String),
}

impl Refusal {
    pub fn reason(&self) -> &str {
        match self {
            Refusal::Overtaken(reason) | Refusal::Batch(reason) => reason,
        }
    }
}

/// Material of one kind that serves a session's next request.
pub(crate) trait Shelf {
    /// What is set aside of it.
    type Taken;

    /// The batches that serve; none where the store is out of reach.
    fn names(&self) -> Option<Vec<BatchName>>;

    /// Batches that another role lacks are not offered. Others are, and so removed everywhere.
    fn offers_common_alone(&self) -> bool;

    /// At P0: sets aside what comes next of the batches `offered`, if there is enough.
    fn reserve(&mut self, offered: &[BatchName]) -> Option<(Offer, Result<Self::Taken, Refusal>)>;

    /// At the others, before they say that the request is here.
    fn enter(&mut self) {}

    /// Whether an offer is an answer to the request.
    fn fits(&self, offer: &Offer) -> bool;

    /// Sets aside what P0 offers.
    fn claim(&mut self, offer: &Offer) -> Result<Self::Taken, Refusal>;
}

/// What became of an offer.
pub(crate) enum Portion<T> {
    /// All roles have set it aside.
    Taken(T),
    /// It cannot be used, of that batch.
    Refused(BatchName, Refusal),
    /// P0 has too little.
    Nothing,
}

/// Sets aside what serves `count` runs of `batch` samples, or the first of them, at all roles.
pub(crate) fn draw<S: Shelf>(
    others: Others,
    control: &mut dyn Endpoint,
    (batch, count): (usize, u32),
    shelf: &mut S,
) -> Result<Portion<S::Taken>, String> {
    let (offer, taken) = if others.0.me() == OFFERS {
        let offered = wait_for_all(others, control, (batch, count), shelf)?;
        let Some((offer, taken)) = offered.and_then(|names| shelf.reserve(&names)) else {
            others.tell(control, &StoreMessage::Nothing)?;
            return Ok(Portion::Nothing);
        };
        others.tell(control, &StoreMessage::Offer(offer.clone()))?;
        (offer, taken)
    } else {
        shelf.enter();
        let has = shelf.names().map(|names| names.into_iter().map(Hex).collect());
        let asked = StoreMessage::Asked { batch, count, has };
        wire::send_control(control, OFFERS, &asked).map_err(|error| error.to_string())?;
        let offer = match others.hear(control, OFFERS)? {
            StoreMessage::Nothing => return Ok(Portion::Nothing),
            StoreMessage::Offer(offer) if shelf.fits(&offer) => offer,
            _ => return Err(others.unexpected(OFFERS)),
        };
        let taken = shelf.claim(&offer);
        (offer, taken)
    };
    let name = offer.batch.0;
    let here = taken.as_ref().map(|_| ()).map_err(Clone::clone);
    Ok(match (settle(others, control, StoreMessage::Offer(offer), &here)?, taken) {
        (None, Ok(taken)) => Portion::Taken(taken),
        (Some(refusal), _) | (None, Err(refusal)) => Portion::Refused(name, refusal),
    })
}

/// At P0, before it sets anything aside: that the client has asked all others for the same. It could lose material for all by asking P0
/// alone. The batches to offer from, none where a role's store is out of reach: no batch is to be lost for that.
fn wait_for_all(
    others: Others,
    control: &mut dyn Endpoint,
    asked: (usize, u32),
    shelf: &impl Shelf,
) -> Result<Option<Vec<BatchName>>, String> {
    let mut offered = shelf.names();
    for from in others.ids() {
        match others.hear(control, from)? {
            StoreMessage::Asked { batch, count, has } if (batch, count) == asked => match (has, &mut offered) {
                (None, _) => offered = None,
                (Some(has), Some(offered)) if shelf.offers_common_alone() => {
                    offered.retain(|name| has.contains(&Hex(*name)));
                }
                _ => {}
            },
            StoreMessage::Asked { .. } => {
                let name = others.0.name(from);
                return Err(format!("the client asked {name} for other runs than this party"));
            }
            _ => return Err(others.unexpected(from)),
        }
    }
    Ok(offered)
}

/// Tells all others how `what` went here, and hears how it went there: why it did not, the same kind of reason at all roles. All must
/// mean the same by it: P0 may have told each another thing.
pub(crate) fn settle(
    others: Others,
    control: &mut dyn Endpoint,
    what: StoreMessage,
    here: &Result<(), Refusal>,
) -> Result<Option<Refusal>, String> {
    let told = match here {
        Ok(()) => what.clone(),
        Err(Refusal::Overtaken(reason)) => StoreMessage::Overtaken { reason: one_line(reason) },
        Err(Refusal::Batch(reason)) => StoreMessage::Refused { reason: one_line(reason) },
    };
    others.tell(control, &told)?;
    let mut refusals: Vec<Refusal> = here.as_ref().err().cloned().into_iter().collect();
    for from in others.ids() {
        let name = others.0.name(from);
        let said = |reason: String| format!("{name}: {}", one_line(&reason));
        match others.hear(control, from)? {
            heard if heard == what => {}
            StoreMessage::Overtaken { reason } => refusals.push(Refusal::Overtaken(said(reason))),
            StoreMessage::Refused { reason } => refusals.push(Refusal::Batch(said(reason))),
            StoreMessage::Offer(_) => refusals.push(Refusal::Batch(format!("{name} was offered another portion"))),
            _ => return Err(others.unexpected(from)),
        }
    }
    let gravest = refusals.iter().position(|refusal| matches!(refusal, Refusal::Batch(_)));
    Ok(refusals.into_iter().nth(gravest.unwrap_or_default()))
}
