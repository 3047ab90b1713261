//! What a party keeps for each program, what that takes, and its deletion: of a party that serves, or in the state folder of one that
//! does not.

use std::path::Path;
use std::sync::Arc;

use covey_messages::{DataSetUse, Deleted, Hex, Key, ProgramUse, ShareWeights, StoreStatus};

use crate::budget::Memory;
use crate::checkpoints::CheckpointStore;
use crate::claim::Claim;
use crate::config::AllowedClient;
use crate::data_sets::DataSetStore;
use crate::error::NodeError;
use crate::files;
use crate::masks::MaskStore;
use crate::runs::RunStore;
use crate::state::{Head, Store, StoredWeights};
use crate::supply::Stores;
use crate::weights::Cache;

/// All that a party keeps for sessions to come.
pub struct Holdings {
    pub(crate) store: Arc<Store>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) runs: Arc<RunStore>,
    pub(crate) masks: Arc<MaskStore>,
    pub(crate) checkpoints: Arc<CheckpointStore>,
    pub(crate) data_sets: Arc<DataSetStore>,
    /// Of a party that serves.
    pub(crate) memory: Option<Arc<Memory>>,
}

/// A state folder that no party serves, to be changed by its operator. While this lives no daemon can start there.
pub struct Operator {
    holdings: Holdings,
    _claim: Claim,
}

impl Holdings {
    /// Looks into the state folder of a party. Also says what cannot be read there, which may be what a daemon has open.
    ///
    /// # Errors
    /// If there is no such folder, or it cannot be read.
    pub fn look(state: &Path) -> Result<(Self, Vec<String>), NodeError> {
        check_folder(state)?;
        let (store, _) = Store::open(state)?;
        let (stores, runs) = (Arc::new(Stores::new(state)), Arc::new(RunStore::new(state)));
        let mut problems: Vec<String> = files::unwritable(state).into_iter().chain(stores.status().1).collect();
        problems.extend(runs.status(|_| true).1);
        let (masks, checkpoints) = (Arc::new(MaskStore::new(state)), Arc::new(CheckpointStore::new(state)));
        let data_sets = Arc::new(DataSetStore::new(state));
        let holdings = Holdings { store: Arc::new(store), stores, runs, masks, checkpoints, data_sets, memory: None };
        problems.extend(holdings.damage());
        Ok((holdings, problems))
    }

    /// What cannot be read of what is kept.
    pub(crate) fn damage(&self) -> Vec<String> {
        let Holdings { store, stores, runs, checkpoints, data_sets, .. } = self;
        let material = [stores.damage(), runs.damage(), checkpoints.problems()];
        [store.damage(), material.concat(), data_sets.list(|_| false).1].concat()
    }

    /// What each program takes and whose it is, by name.
    pub fn usage(&self) -> Vec<ProgramUse> {
        let mut usage: Vec<ProgramUse> = self.store.all().iter().map(|held| self.usage_of(held)).collect();
        usage.sort_by(|a, b| (&a.name, a.program).cmp(&(&b.name, b.program)));
        usage
    }

    /// The same of the programs that a client shared.
    pub(crate) fn usage_by(&self, client: &AllowedClient) -> Vec<ProgramUse> {
        let own = |held: &Arc<StoredWeights>| client.share_weights && held.head.belongs_to(client);
        self.store.all().iter().filter(|held| own(held)).map(|held| self.usage_of(held)).collect()
    }

    fn usage_of(&self, held: &StoredWeights) -> ProgramUse {
        let Head { name, ring, upload, owner_name, .. } = &held.head;
        let ShareWeights { program, weights_version, role, protocol, .. } = upload;
        ProgramUse {
            program: *program,
            name: name.clone(),
            weights_version: *weights_version,
            role: *role,
            protocol: protocol.clone(),
            ring: *ring,
            owner: owner_name.clone(),
            share_bytes: held.bytes(),
            masks_bytes: self.masks.bytes(program),
            runs_bytes: self.runs.bytes(program),
            checkpoints_bytes: self.checkpoints.bytes(program),
            memory_bytes: self.memory.as_ref().map(|_| held.caches.iter().map(Cache::memory).sum()),
            run_memory: self.memory.as_ref().and_then(|memory| memory.largest_run(program)),
        }
    }

    /// The correlated OTs that are kept for sessions with each peer.
    pub fn stocks(&self) -> Vec<StoreStatus> {
        self.stores.status().0
    }

    /// Deletes the weights of a program, the offline material for them, and checkpoints that began with them: for the client that shared them or, where none asks, for the
    /// operator. What is not there is deleted already.
    pub(crate) fn delete_weights(&self, program: &Hex<32>, asking: Option<&AllowedClient>) -> Result<Deleted, String> {
        let weights = self.store.check_deletable(program, asking)?;
        let (mut runs, mut damaged) = (0, 0);
        // Whose runs are without weights is not known.
        if weights || asking.is_none() {
            // The weights last: until they are gone their owner may ask again for what failed.
            (runs, damaged) = self.runs.delete(Some(program), |_| true)?;
            self.masks.delete(program)?;
            self.checkpoints.delete(program, |_| true)?;
            let failed = |error| format!("it cannot delete the weights of program {}: {error}", program.short());
            self.store.delete(program).map_err(failed)?;
        }
        Ok(Deleted { weights, runs, damaged, ..Deleted::default() })
    }

    /// Deletes stored offline material with the peers that `with` names: the stored runs of a program, or all of them and the correlated OTs.
    pub(crate) fn delete_store(
        &self,
        program: Option<&Hex<32>>,
        with: impl Fn(&Key) -> bool,
    ) -> Result<Deleted, String> {
        delete_material((&self.runs, &self.stores), program, with)
    }

    /// The data sets of all owners, by name.
    pub fn data_sets(&self) -> Vec<DataSetUse> {
        self.data_sets.list(|_| true).0
    }

    /// Deletes a data set of a program: for its owner or, where none asks, for the operator. What is not there is deleted already.
    pub(crate) fn delete_data(
        &self,
        program: &Hex<32>,
        name: &str,
        asking: Option<&AllowedClient>,
    ) -> Result<Deleted, String> {
        Ok(Deleted { data_sets: self.data_sets.delete(program, name, asking)?, ..Deleted::default() })
    }
}

/// Deletes the stored runs of a program, or all of them and the correlated OTs, with the peers that `with` names.
pub(crate) fn delete_material(
    (runs, stores): (&RunStore, &Stores),
    program: Option<&Hex<32>>,
    with: impl Fn(&Key) -> bool,
) -> Result<Deleted, String> {
    // What fails in one leaves nothing in the other.
    let stored = runs.delete(program, &with);
    let (ots, damaged_ots) = if program.is_none() { stores.delete(with)? } else { (0, 0) };
    let (runs, damaged) = stored?;
    Ok(Deleted { runs, ots, damaged: damaged + damaged_ots, ..Deleted::default() })
}

/// To ask for a folder must not make it.
fn check_folder(state: &Path) -> Result<(), NodeError> {
    let folder = state.display().to_string();
    match state.is_dir() {
        true => Ok(()),
        false => Err(NodeError::State { folder, problem: "there is no such folder".into() }),
    }
}

impl Operator {
    /// Takes the state folder of a party that does not serve.
    ///
    /// # Errors
    /// If there is no such folder, or a party serves there.
    pub fn open(state: &Path) -> Result<Self, NodeError> {
        check_folder(state)?;
        let claim = Claim::alone(state)?;
        let (holdings, _) = Holdings::look(state)?;
        Ok(Operator { holdings, _claim: claim })
    }

    /// Deletes the weights of a program and the offline material for them, whoever shared them.
    ///
    /// # Errors
    /// What the system said.
    pub fn delete_weights(&self, program: &Hex<32>) -> Result<Deleted, String> {
        self.holdings.delete_weights(program, None)
    }

    /// Deletes the stored runs of a program, or all offline material.
    ///
    /// # Errors
    /// What the system said.
    pub fn delete_store(&self, program: Option<&Hex<32>>) -> Result<Deleted, String> {
        self.holdings.delete_store(program, |_| true)
    }

    /// Deletes the damaged batches, checkpoints and data sets of all owners. Damaged weights go with their program.
    ///
    /// # Errors
    /// What the system said.
    pub fn delete_damaged(&self) -> Result<Deleted, String> {
        let Holdings { stores, runs, checkpoints, data_sets, .. } = &self.holdings;
        // What fails in one leaves nothing in the others.
        let counts =
            [runs.delete_damaged(), stores.delete_damaged(), checkpoints.delete_damaged(), data_sets.delete_damaged()];
        let damaged = counts.into_iter().sum::<Result<u64, String>>()?;
        Ok(Deleted { damaged, ..Deleted::default() })
    }

    /// Deletes a data set of a program, whoever shared it.
    ///
    /// # Errors
    /// What the system said.
    pub fn delete_data(&self, program: &Hex<32>, name: &str) -> Result<Deleted, String> {
        self.holdings.delete_data(program, name, None)
    }
}
