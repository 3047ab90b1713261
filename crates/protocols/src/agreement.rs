//! How the holders of a key make it: each commits to what it adds before any tells, so that nobody chooses the key, not even who speaks
//! last (Blum, *Coin flipping by telephone*). Who sees the key first can still refuse it, which ends the session before it is used.

use std::collections::BTreeMap;

use covey_kernels::constant_time::equal_bytes;
use zeroize::Zeroizing;

/// Bytes of a key, of a commitment and of a confirmation.
pub const KEY: usize = 32;
/// Bytes of what is told once all have committed: what a holder adds to the key, and a nonce that hides it until then.
pub const OPENING: usize = 64;

/// A key, or a part of one.
pub type Secret<const LEN: usize> = Zeroizing<[u8; LEN]>;

/// What a key is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// Of everything that all have told each other.
    pub transcript: &'a [u8; 32],
    /// The session.
    pub session: &'a [u8; 16],
    /// The holders' roles, in ascending order.
    pub group: &'a [usize],
}

/// What a holder was told that it may not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Who tells is no other holder, tells twice, or tells before all have committed.
    OutOfTurn,
    /// What is told is not what was committed to.
    NotCommitted,
}

/// The making of a key, at one holder. Not `Debug`.
pub struct Agreement<'a> {
    binding: Binding<'a>,
    role: usize,
    own: Secret<OPENING>,
    commitments: BTreeMap<usize, [u8; KEY]>,
    openings: BTreeMap<usize, Secret<OPENING>>,
}

impl<'a> Agreement<'a> {
    /// At the holder in `role`, who adds `own`: fresh random bytes.
    pub fn new(binding: Binding<'a>, role: usize, own: Secret<OPENING>) -> Self {
        Agreement { binding, role, own, commitments: BTreeMap::new(), openings: BTreeMap::new() }
    }

    /// Who holds the key.
    pub fn group(&self) -> &'a [usize] {
        self.binding.group
    }

    /// What this holder tells the others first.
    pub fn commitment(&self) -> [u8; KEY] {
        self.binding.commitment(self.role, &self.own)
    }

    /// Takes another holder's commitment.
    ///
    /// # Errors
    /// If it is not its turn.
    pub fn committed(&mut self, by: usize, commitment: [u8; KEY]) -> Result<(), Refusal> {
        let fits = self.is_other(by) && !self.commitments.contains_key(&by);
        fits.then_some(()).ok_or(Refusal::OutOfTurn)?;
        self.commitments.insert(by, commitment);
        Ok(())
    }

    /// What this holder tells the others next: nothing before all have committed.
    pub fn opening(&self) -> Option<&Secret<OPENING>> {
        (self.commitments.len() + 1 == self.group().len()).then_some(&self.own)
    }

    /// Takes what another holder adds.
    ///
    /// # Errors
    /// If it is not its turn, or it committed to something else.
    pub fn opened(&mut self, by: usize, opening: Secret<OPENING>) -> Result<(), Refusal> {
        let commitment =
            self.commitments.get(&by).filter(|_| self.opening().is_some() && !self.openings.contains_key(&by));
        let commitment = commitment.ok_or(Refusal::OutOfTurn)?;
        if !equal_bytes(commitment, &self.binding.commitment(by, &opening)) {
            return Err(Refusal::NotCommitted);
        }
        self.openings.insert(by, opening);
        Ok(())
    }

    /// The key, once all have told. Holders of a key of more than two compare [`confirmation`]s before they use it: a member may have told
    /// them different things.
    pub fn key(&self) -> Option<Secret<KEY>> {
        let parts =
            self.group().iter().map(|role| if *role == self.role { Some(&self.own) } else { self.openings.get(role) });
        Some(self.binding.key(parts.collect::<Option<Vec<_>>>()?))
    }

    fn is_other(&self, role: usize) -> bool {
        role != self.role && self.group().contains(&role)
    }
}

impl Binding<'_> {
    fn material(&self) -> Zeroizing<Vec<u8>> {
        let mut material = Zeroizing::new(Vec::with_capacity(32 + 16 + 2 + self.group.len() * (1 + KEY) + OPENING));
        material.extend_from_slice(self.transcript);
        material.extend_from_slice(self.session);
        material.push(self.group.len() as u8);
        material.extend(self.group.iter().map(|&role| role as u8));
        material
    }

    /// Of the holder in `role`: no other can commit to the same by copying it.
    fn commitment(&self, role: usize, opening: &Secret<OPENING>) -> [u8; KEY] {
        let mut material = self.material();
        material.push(role as u8);
        material.extend_from_slice(&**opening);
        blake3::derive_key("covey 2026 session key commitment", &material)
    }

    /// The key from what all holders add, in the order of roles.
    fn key(&self, openings: Vec<&Secret<OPENING>>) -> Secret<KEY> {
        let mut material = self.material();
        openings.into_iter().for_each(|opening| material.extend_from_slice(&opening[..KEY]));
        Zeroizing::new(blake3::derive_key("covey 2026 session key", &material))
    }
}

/// What the holder in `role` shows the others of its key.
pub fn confirmation(key: &Secret<KEY>, role: usize) -> Secret<KEY> {
    let mut material = Zeroizing::new([0; KEY + 1]);
    material[..KEY].copy_from_slice(&**key);
    material[KEY] = role as u8;
    Zeroizing::new(blake3::derive_key("covey 2026 session key confirmation", &*material))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDING: Binding = Binding { transcript: &[1; 32], session: &[2; 16], group: &[0, 1, 3] };

    fn own(byte: u8) -> Secret<OPENING> {
        Zeroizing::new([byte; OPENING])
    }

    /// Of all holders, once they have committed.
    fn committed() -> Vec<Agreement<'static>> {
        let mut holders: Vec<_> =
            BINDING.group.iter().map(|&role| Agreement::new(BINDING, role, own(role as u8))).collect();
        let commitments: Vec<_> =
            BINDING.group.iter().zip(&holders).map(|(&role, one)| (role, one.commitment())).collect();
        for (holder, &me) in holders.iter_mut().zip(BINDING.group) {
            assert!(holder.opening().is_none());
            for &(by, commitment) in commitments.iter().filter(|(by, _)| *by != me) {
                assert_eq!(holder.opened(by, own(by as u8)), Err(Refusal::OutOfTurn));
                holder.committed(by, commitment).unwrap();
                assert_eq!(holder.committed(by, commitment), Err(Refusal::OutOfTurn));
            }
            assert_eq!(holder.committed(me, [0; KEY]), Err(Refusal::OutOfTurn));
            assert_eq!(holder.committed(2, [0; KEY]), Err(Refusal::OutOfTurn));
        }
        holders
    }

    #[test]
    fn all_holders_have_one_key_that_depends_on_each() {
        let mut holders = committed();
        for (holder, &me) in holders.iter_mut().zip(BINDING.group) {
            assert!(holder.key().is_none());
            BINDING.group.iter().filter(|by| **by != me).for_each(|&by| holder.opened(by, own(by as u8)).unwrap());
        }
        let keys: Vec<_> = holders.iter().map(|holder| holder.key().unwrap()).collect();
        assert!(keys.iter().all(|key| *key == keys[0]));
        let all: Vec<_> = [0, 1, 3].map(own).into();
        for changed in 0..3 {
            let mut all: Vec<_> = all.iter().collect();
            let other = own(9);
            all[changed] = &other;
            assert_ne!(BINDING.key(all), keys[0]);
        }
        for binding in [
            Binding { transcript: &[7; 32], ..BINDING },
            Binding { session: &[7; 16], ..BINDING },
            Binding { group: &[0, 2, 3], ..BINDING },
        ] {
            assert_ne!(binding.key(all.iter().collect()), keys[0]);
            assert_ne!(binding.commitment(1, &own(1)), BINDING.commitment(1, &own(1)));
        }
        assert_ne!(confirmation(&keys[0], 0), confirmation(&keys[0], 1));
    }

    /// Not another contribution, not another nonce, and not another holder's commitment copied.
    #[test]
    fn what_is_told_must_be_what_was_committed_to() {
        let mut holder = committed().swap_remove(0);
        let mut nonce = own(3);
        nonce[OPENING - 1] ^= 1;
        for wrong in [own(4), nonce] {
            assert_eq!(holder.opened(3, wrong), Err(Refusal::NotCommitted));
        }
        holder.opened(3, own(3)).unwrap();
        let mut holder = Agreement::new(BINDING, 0, own(0));
        let copied = BINDING.commitment(1, &own(1));
        holder.committed(1, copied).unwrap();
        holder.committed(3, copied).unwrap();
        assert_eq!(holder.opened(3, own(1)), Err(Refusal::NotCommitted));
    }
}
