//! The inputs that damage starts from: files that are kept, and whatever led to a new outcome since.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest input that is kept.
const LONGEST: usize = 16 << 10;
/// Most inputs.
const MOST: usize = 400;

/// The corpus of a target.
pub struct Corpus {
    inputs: Vec<Vec<u8>>,
    /// How many of them are files.
    files: usize,
}

impl Corpus {
    /// The files of a folder, by name.
    ///
    /// # Errors
    /// If there are none.
    pub fn read(folder: &Path) -> Result<Corpus, String> {
        let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut paths: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        let inputs: Vec<Vec<u8>> = paths.iter().filter_map(|path| fs::read(path).ok()).collect();
        match inputs.len() {
            0 => Err(format!("{}: no inputs", folder.display())),
            files => Ok(Corpus { inputs, files }),
        }
    }

    /// All of them, one at least.
    pub fn inputs(&self) -> &[Vec<u8>] {
        &self.inputs
    }

    /// Those of the folder.
    pub fn kept(&self) -> &[Vec<u8>] {
        &self.inputs[..self.files]
    }

    /// Takes in what led to a new outcome.
    pub fn add(&mut self, input: &[u8]) {
        if input.len() <= LONGEST && self.inputs.len() < MOST {
            self.inputs.push(input.to_vec());
        }
    }
}
