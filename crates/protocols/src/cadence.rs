//! When the tiles of a gate start: a function of how many there are, of the window and of a tile's rounds, so that all parties
//! agree on the order of messages and the plan on the number of rounds.
//!
//! Work goes in passes: each advances every tile in flight by one round, then starts new ones. Up to `window` tiles start
//! together, in the first pass: the rounds stay those of one tile. More tiles start evenly, window ÷ rounds of them a pass: in
//! every pass some are at each of their rounds, so that the computation that precedes a tile and the messages of all
//! rounds share the time, where tiles in step would compute first and then wait for the line.

/// How many tiles start in a pass.
pub(crate) fn starts(tiles: usize, window: usize, rounds: usize) -> usize {
    if tiles <= window { window } else { (window / rounds.max(1)).max(1) }
}

/// Rounds one after the other of `tiles` tiles of `rounds` rounds, the last of them of `last`.
pub(crate) fn rounds(tiles: usize, window: usize, rounds: usize, last: usize) -> usize {
    let window = window.max(1);
    let starts = starts(tiles, window, rounds);
    let pass = |tile: usize| match tiles <= window || rounds == 0 {
        true => 0,
        // Below one start a pass: a tile starts where another one has ended.
        false if window < rounds => tile / window * rounds + tile % window,
        false => tile / starts,
    };
    match tiles {
        0 => 0,
        1 => last,
        _ => (pass(tiles - 2) + rounds).max(pass(tiles - 1) + last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tiles_share_their_rounds_and_many_cost_about_as_many_windows() {
        assert_eq!(rounds(0, 64, 5, 5), 0);
        assert_eq!(rounds(64, 64, 5, 5), 5);
        assert_eq!(rounds(1, 1, 5, 3), 3);
        assert_eq!(rounds(3, 1, 5, 5), 15);
        assert_eq!(rounds(1000, 64, 0, 0), 0);
        for (tiles, window, r) in [(65, 64, 5), (196, 64, 5), (1000, 64, 9), (100, 3, 7), (100, 8, 8), (7, 2, 1)] {
            let groups = tiles * r / window;
            let got = rounds(tiles, window, r, r);
            assert!(
                got >= groups && got <= groups * 5 / 4 + 2 * r,
                "{tiles} tiles, window {window}, {r} rounds: {got}"
            );
        }
    }
}
