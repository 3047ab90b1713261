//! Bytes that are overwritten when they are dropped.

use std::ops::{Deref, DerefMut};

/// A buffer that never grows, so that no copy of it stays behind. Not `Debug`.
pub(crate) struct SecretBytes(Box<[u8]>);

impl SecretBytes {
    pub fn zeros(len: usize) -> Self {
        SecretBytes(vec![0; len].into())
    }
}

impl Deref for SecretBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for SecretBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Overwrites `values` in as wide stores as the compiler likes: `Zeroize` on a slice writes them one by one.
pub fn wipe<T: Copy + Default>(values: &mut [T]) {
    values.fill(T::default());
    zeroize::optimization_barrier(&*values);
}
