//! Items that were set aside, read part by part as they are used.

use std::collections::BTreeMap;
use std::ops::Range;

use zeroize::Zeroizing;

use crate::body::{Body, PART, Part, parts};
use crate::secret::{SecretBytes, wipe};
use crate::{Result, refuse};

/// Items that were set aside, for whoever has this; overwritten in the file when they are read, or this is dropped.
pub struct Items {
    body: Body,
    /// Those not taken yet.
    range: Range<u64>,
    /// Parts shared with other ranges: the bytes of these items, which the file no longer has.
    held: BTreeMap<u64, Part>,
    /// Where parts are read to.
    read: Option<Read>,
}

struct Read {
    /// The part that is here.
    number: Option<u64>,
    /// As long as the longest part.
    buffer: SecretBytes,
}

impl Items {
    pub(crate) fn new(body: Body, range: Range<u64>) -> Self {
        Items { body, range, held: BTreeMap::new(), read: None }
    }

    /// Keeps these items' bytes of a part that is shared with other ranges.
    pub(crate) fn hold(&mut self, number: u64, part: Part) {
        self.held.insert(number, part);
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The next `count` items; they are in memory alone afterwards.
    ///
    /// # Errors
    /// As [`Items::take_with`].
    pub fn take(&mut self, count: u64) -> Result<Zeroizing<Vec<u8>>> {
        let room = if count > self.left() { 0 } else { count * self.body.item };
        let mut out = Zeroizing::new(Vec::with_capacity(room as usize));
        self.take_with(count, |bytes| out.extend_from_slice(bytes))?;
        Ok(out)
    }

    /// Hands the next `count` items to `sink`, piece by piece in order. Pieces hold whole items where an item's size is a power of two
    /// up to 2^20.
    ///
    /// # Errors
    /// If there are fewer, which changes nothing. If they cannot be read or do not verify: `sink` may have had some of them, and no item
    /// is left.
    pub fn take_with(&mut self, count: u64, sink: impl FnMut(&[u8])) -> Result<()> {
        if count > self.left() {
            return Err(refuse(&self.body.path, "there are fewer items than were asked for"));
        }
        let start = self.range.start;
        // Before `sink` has any: one that panics is not given them again.
        self.range.start += count;
        let handed = self.hand_out(self.bytes_of(&(start..self.range.start)), sink);
        if handed.is_err() {
            self.range.start = start;
            self.lose();
        }
        handed
    }

    fn hand_out(&mut self, bytes: Range<u64>, mut sink: impl FnMut(&[u8])) -> Result<()> {
        for number in parts(&bytes) {
            let begin = number * PART;
            let inside = (bytes.start.max(begin) - begin) as usize..(bytes.end.min(begin + PART) - begin) as usize;
            let Some(part) = self.part(number)? else {
                let refused = format!("part {number} does not verify: its material is refused");
                return Err(refuse(&self.body.path, refused));
            };
            sink(&part[inside]);
        }
        let used = |number: u64| self.range.is_empty() || (number + 1) * PART <= bytes.end;
        self.held.retain(|&number, _| !used(number));
        if let Some(read) = self.read.as_mut().filter(|read| read.number.is_some_and(used)) {
            wipe(&mut read.buffer);
            read.number = None;
        }
        Ok(())
    }

    /// The bytes of a part, in memory alone; none if it does not verify.
    fn part(&mut self, number: u64) -> Result<Option<&[u8]>> {
        if let Some(held) = self.held.get(&number) {
            return Ok(held.as_deref());
        }
        let longest = self.body.len().min(PART) as usize;
        let read = self.read.get_or_insert_with(|| Read { number: None, buffer: SecretBytes::zeros(longest) });
        if read.number == Some(number) {
            return Ok(Some(&read.buffer));
        }
        read.number = None;
        let part = self.body.take_part(number, &mut read.buffer)?;
        read.number = part.map(|_| number);
        Ok(part)
    }

    /// Overwrites what is left in the file; nothing is left afterwards.
    fn lose(&mut self) {
        let read = self.read.take().and_then(|read| read.number);
        for number in parts(&self.bytes()) {
            if !self.held.contains_key(&number) && read != Some(number) {
                // What fails here is done when the file is opened.
                let _ = self.body.erase(self.body.part_bytes(number));
            }
        }
        self.held.clear();
        self.range.start = self.range.end;
    }

    /// The bytes of those not taken yet.
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.bytes_of(&self.range)
    }

    fn bytes_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start * self.body.item..range.end * self.body.item
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        self.lose();
    }
}
