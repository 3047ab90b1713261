//! Ways to choose a key of three: what each other holder makes of a holder that knows the others' parts and makes up its own.

use covey_protocols::agreement::{Agreement, Binding, KEY, OPENING, Refusal, Secret, confirmation};
use covey_transport::PeerId;

use super::judge::Tally;
use super::strategies::Row;

/// Who shares the keys.
const GROUPS: [[PeerId; 3]; 4] = [[0, 1, 3], [0, 2, 3], [0, 1, 2], [1, 2, 3]];

/// What the cheater does.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Commits, and once it has heard the others tells that of 256 parts with which the key begins with the least byte.
    Last,
    /// Waits for the others' parts before it commits.
    First,
    /// Commits to one part to one holder and to another to the other.
    Different,
    /// Commits to what another committed to, and tells what that one tells.
    Copied,
    /// Commits and tells as in another session.
    OtherSession,
}

const WAYS: [(&str, Way); 5] = [
    ("tells another part of a key than it committed to", Way::Last),
    ("commits to its part of a key last", Way::First),
    ("tells the others different parts of a key", Way::Different),
    ("copies another's part of a key", Way::Copied),
    ("tells its part of another session's key", Way::OtherSession),
];

/// Every way, for every group and every member of it.
pub fn campaign() -> Vec<Row> {
    let row = |(strategy, way): (&'static str, Way)| {
        let mut row = Row { strategy, places: Vec::new(), bad: Vec::new(), idle: Vec::new(), tally: Tally::default() };
        for group in &GROUPS {
            for &me in group {
                let place = format!("P{me} of {group:?}");
                let accepted = accepted(way, group, me);
                let counts = Tally {
                    runs: 1,
                    refused: usize::from(!accepted),
                    wrong: usize::from(accepted),
                    ..Tally::default()
                };
                row.tally.add(&counts);
                if accepted {
                    row.bad.push(place.clone());
                }
                row.places.push(place);
            }
        }
        row
    };
    WAYS.into_iter().map(row).collect()
}

fn part(byte: u8) -> Secret<OPENING> {
    Secret::new([byte; OPENING])
}

/// Whether the other holders end with keys that they use.
fn accepted(way: Way, group: &[PeerId], me: PeerId) -> bool {
    let binding = Binding { transcript: &[1; 32], session: &[2; 16], group };
    let others: Vec<PeerId> = group.iter().copied().filter(|&role| role != me).collect();
    let mut holders: Vec<Agreement> =
        others.iter().map(|&role| Agreement::new(binding, role, part(10 + role as u8))).collect();
    let commitments: Vec<[u8; KEY]> = holders.iter().map(Agreement::commitment).collect();
    let own = |byte: u8| Agreement::new(binding, me, part(byte));
    let elsewhere = Agreement::new(Binding { session: &[3; 16], ..binding }, me, part(1)).commitment();
    // The key as the cheater foresees it, with its own part and those of the others.
    let foreseen = |byte: u8| -> Option<Secret<KEY>> {
        let mut own = own(byte);
        others.iter().zip(&commitments).try_for_each(|(&by, &commitment)| own.committed(by, commitment)).ok()?;
        others.iter().try_for_each(|&by| own.opened(by, part(10 + by as u8))).ok()?;
        own.key()
    };
    let committed = |to: usize| match way {
        Way::Last => Some(own(1).commitment()),
        Way::First => None,
        Way::Different => Some(own(to as u8).commitment()),
        Way::Copied => Some(commitments[1 - to]),
        Way::OtherSession => Some(elsewhere),
    };
    let mut result: Result<(), Refusal> = Ok(());
    for (to, holder) in holders.iter_mut().enumerate() {
        let other = 1 - to;
        result = result.and(holder.committed(others[other], commitments[other]));
        if let Some(commitment) = committed(to) {
            result = result.and(holder.committed(me, commitment));
        }
    }
    // Who waits for the others' parts is told none.
    if result.is_err() || holders.iter().any(|holder| holder.opening().is_none()) {
        return false;
    }
    let least = (2..=u8::MAX).min_by_key(|&byte| foreseen(byte).map(|key| key[0])).unwrap_or_default();
    let told = |to: usize| match way {
        Way::Last => part(least),
        Way::Different => part(to as u8),
        Way::Copied => part(10 + others[1 - to] as u8),
        Way::First | Way::OtherSession => part(1),
    };
    for (to, holder) in holders.iter_mut().enumerate() {
        let other = others[1 - to];
        result = result.and(holder.opened(other, part(10 + other as u8)));
        result = result.and(holder.opened(me, told(to)));
    }
    let keys: Option<Vec<_>> = holders.iter().map(Agreement::key).collect();
    // The cheater shows each what fits its key; the two see each other's.
    let confirmed = |keys: Vec<Secret<KEY>>| confirmation(&keys[0], others[0]) == confirmation(&keys[1], others[0]);
    result.is_ok() && keys.is_some_and(confirmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_to_choose_a_key_is_accepted() {
        for row in campaign() {
            assert_eq!((row.tally.runs, row.tally.refused, row.tally.wrong), (12, 12, 0), "{}", row.strategy);
        }
    }
}
