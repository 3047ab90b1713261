//! What clients may take of this party: memory, sessions, preprocessed runs. Memory is counted before it is taken, by estimates that
//! follow from the program and the number of samples alone.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use covey_messages::config::{ConfigError, ConfigFile};
use covey_messages::{Hex, OptionsMessage, PhaseMessage, Run};
use covey_program::Program;
use covey_protocols::cost::CostModel;
use covey_protocols::{Options, Roles};
use covey_runtime::plan::{Footprint, carried_memory, footprint, largest_tensor};

use crate::config::AllowedClient;
use crate::weights::in_components;

const MIB: u64 = 1 << 20;
/// More than any machine has; sums of such stay in range.
const MOST: u64 = 1 << 60;
/// Footprints kept, so that a request for what was asked before needs no plan.
const PLANS: usize = 256;

/// What all clients and peers together may take of this party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartyBudget {
    /// Bytes of memory for all sessions; three quarters of the machine's if `None`.
    pub memory: Option<u64>,
    /// Bytes that one party may have waiting in a session, a lane.
    pub queue: u64,
    /// Sessions and uploads at once.
    pub sessions: usize,
    /// Sessions that may wait for a place.
    pub waiting: usize,
    /// How long each of them may wait.
    pub wait: Duration,
    /// A session whose client asks for nothing for so long ends where another client has no place.
    pub idle: Duration,
}

/// What one client may take of this party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientBudget {
    /// Bytes of memory for all its sessions; half of the machine's if `None`.
    pub memory: Option<u64>,
    /// Bytes that it may have waiting in a session.
    pub queue: u64,
    /// Sessions and uploads at once.
    pub sessions: usize,
    /// Runs of a session that are preprocessed and not used yet.
    pub runs: usize,
    /// Bytes of disk for its data sets.
    pub data: u64,
    /// Bytes of disk for its checkpoints.
    pub checkpoints: u64,
}

impl Default for PartyBudget {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        PartyBudget { memory: None, queue: 256 * MIB, sessions: 16, waiting: 16, wait: minute, idle: minute }
    }
}

impl Default for ClientBudget {
    fn default() -> Self {
        let disk = 10_240 * MIB;
        ClientBudget { memory: None, queue: 64 * MIB, sessions: 8, runs: 1 << 16, data: disk, checkpoints: disk }
    }
}

/// A number of MiB from a configuration, in bytes.
pub(crate) fn mebibytes(source: &ConfigFile, key: &str, given: Option<u64>) -> Result<Option<u64>, ConfigError> {
    match given {
        Some(mib) if !(1..=1 << 30).contains(&mib) => Err(source.refuse(key, "a budget has 1 to 1073741824 MiB")),
        given => Ok(given.map(|mib| mib * MIB)),
    }
}

/// How many sessions there may be.
pub(crate) fn sessions(source: &ConfigFile, key: &str, given: Option<usize>) -> Result<Option<usize>, ConfigError> {
    match given {
        Some(0) => Err(source.refuse(key, "no session could begin: give at least 1, or leave it out")),
        given => Ok(given),
    }
}

/// How much memory sessions take, and what they may.
pub(crate) struct Memory {
    party: u64,
    client: u64,
    /// By client's name; without one, what all sessions share.
    taken: Mutex<HashMap<Option<String>, u64>>,
    plans: Mutex<HashMap<PlanOf, Footprint>>,
    /// Lets go of something that is kept for sessions to come; false where there is nothing.
    reclaim: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

/// Everything that a run's footprint follows from.
type PlanOf = (Hex<32>, &'static str, String, usize, u32, (usize, usize));

/// Memory that is counted until this is dropped, as a client's or, with none, as what all sessions share.
pub(crate) struct Charge {
    memory: Arc<Memory>,
    client: Option<AllowedClient>,
    bytes: u64,
}

impl Memory {
    pub fn new(budget: &PartyBudget) -> Self {
        let machine = machine_memory().unwrap_or(MOST).min(MOST);
        let party = budget.memory.unwrap_or(machine / 4 * 3).min(MOST);
        let (taken, plans, reclaim) = (Mutex::default(), Mutex::default(), OnceLock::new());
        Memory { party, client: party.min(machine / 2), taken, plans, reclaim }
    }

    /// Samples of the largest run of a program that was planned lately, and what such a run takes.
    pub fn largest_run(&self, program: &Hex<32>) -> Option<(usize, u64)> {
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let of = plans.iter().filter(|(of, _)| of.0 == *program);
        of.map(|(of, footprint)| (of.3, footprint.run)).max_by_key(|(_, bytes)| *bytes)
    }

    /// Has `reclaim` called, again and again while it says that it let go of something, where there is too little for all.
    pub fn reclaim_by(&self, reclaim: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.reclaim.set(Box::new(reclaim));
    }

    /// Bytes counted, and the most that may be.
    pub fn usage(&self) -> (u64, u64) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        (taken.values().sum(), self.party)
    }

    /// Counts nothing yet of what the client is going to take.
    pub fn nothing(self: &Arc<Self>, client: &AllowedClient) -> Charge {
        Charge { memory: self.clone(), client: Some(client.clone()), bytes: 0 }
    }

    /// Counts nothing yet of what all sessions share.
    pub fn shared(self: &Arc<Self>) -> Charge {
        Charge { memory: self.clone(), client: None, bytes: 0 }
    }

    /// Counts `bytes` as the client's.
    ///
    /// # Errors
    /// One line that says what `what` takes, what is left of which budget, and the way out.
    pub fn take(self: &Arc<Self>, client: &AllowedClient, bytes: u64, what: &str) -> Result<Charge, String> {
        let mut charge = self.nothing(client);
        charge.grow(bytes, what)?;
        Ok(charge)
    }
}

impl Charge {
    /// What it counts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts `bytes` more.
    pub fn grow(&mut self, bytes: u64, what: &str) -> Result<(), String> {
        loop {
            match self.try_grow(bytes, what) {
                Err(Short::OfAll(_)) if self.memory.reclaim.get().is_some_and(|reclaim| reclaim()) => {}
                Err(Short::OfAll(problem) | Short::OfClient(problem)) => return Err(problem),
                Ok(()) => return Ok(()),
            }
        }
    }

    fn try_grow(&mut self, bytes: u64, what: &str) -> Result<(), Short> {
        let Memory { party, client: usual, .. } = *self.memory;
        let mut taken = self.memory.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.client.as_ref().map(|client| client.name.clone());
        let own = taken.get(&key).copied().unwrap_or(0);
        let limit = self.client.as_ref().map_or(MOST, |client| client.budget.memory.unwrap_or(usual).min(MOST));
        let (left, left_of_all) = (limit.saturating_sub(own), party.saturating_sub(taken.values().sum()));
        if bytes <= left.min(left_of_all) {
            taken.insert(key, own + bytes);
            self.bytes += bytes;
            return Ok(());
        }
        let (takes, of) = (spoken(bytes), |left, limit| format!("{} of the {} MB", spoken(left), spoken(limit)));
        Err(match &self.client {
            Some(AllowedClient { name, .. }) if bytes > left => {
                let left = of(left, limit);
                Short::OfClient(format!(
                    "{what}, which takes about {takes} MB; {left} that '{name}' may take here are left: ask for fewer samples or runs at \
                     a time, or have `memory_mb` of its [[client]] entry raised"
                ))
            }
            _ => {
                let left = of(left_of_all, party);
                Short::OfAll(format!(
                    "{what}, which takes about {takes} MB; {left} that this party gives to all its clients are left: try again later, or \
                     have `memory_mb` of its [party] raised"
                ))
            }
        })
    }

    /// Counts `bytes` less.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut taken = self.memory.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.client.as_ref().map(|client| client.name.clone())) {
            *own = own.saturating_sub(bytes);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// Of what there is too little, in one line.
enum Short {
    OfClient(String),
    OfAll(String),
}

/// In millions of bytes, rounded up.
fn spoken(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

/// What a session's runs take of its client's memory.
pub(crate) struct Runs<'a> {
    memory: &'a Arc<Memory>,
    client: &'a AllowedClient,
    program: &'a Arc<Program>,
    costs: CostModel,
    options: Options,
    round_bits: u32,
    /// The roles that it has on the session's lanes, by assignment.
    roles: Vec<usize>,
    /// The weights that were trained, by their values' numbers.
    trained: &'a [u32],
    /// Of runs that are preprocessed and not used yet.
    kept: Charge,
    /// Of values carried from run to run.
    carried: Charge,
    preprocessed: usize,
    /// What each of them was charged, by its number of samples: to plan it again may take more memory than is left.
    each: HashMap<usize, u64>,
}

impl<'a> Runs<'a> {
    pub fn new(
        memory: &'a Arc<Memory>,
        client: &'a AllowedClient,
        (program, costs, options): (&'a Arc<Program>, CostModel, Options),
        round_bits: u32,
        (roles, trained): (Vec<usize>, &'a [u32]),
    ) -> Result<Self, String> {
        let (kept, carried) = (memory.nothing(client), memory.nothing(client));
        Ok(Runs {
            memory,
            client,
            program,
            costs,
            options,
            round_bits,
            roles,
            trained,
            kept,
            carried,
            preprocessed: 0,
            each: HashMap::new(),
        })
    }

    /// Counts what a request takes while it runs, and of preprocessing also what it leaves behind. With `supplied` what runs of a store
    /// were dealt is read before they run.
    pub fn take(&mut self, run: &Run, supplied: bool) -> Result<Charge, String> {
        let Run { phase, batch, count, .. } = *run;
        let preprocessed = self.preprocessed + if phase == PhaseMessage::Preprocess { count as usize } else { 0 };
        let most = self.client.budget.runs;
        if preprocessed > most {
            return Err(format!(
                "{count} more preprocessed runs where '{}' may have {most} in a session, of which {} are there: use them, or have `runs` of \
                 its [[client]] entry raised",
                self.client.name, self.preprocessed
            ));
        }
        let what = format!("{count} run(s) of {batch} sample(s)");
        let (mut charge, footprint) = self.footprint(batch, &what)?;
        let carried =
            self.roles.iter().map(|&role| carried_memory(self.program, self.costs, self.options, batch, role));
        let carried = carried.max().unwrap_or(0);
        self.carried.grow(carried.saturating_sub(self.carried.bytes), &what)?;
        let side_by_side = self.options.lanes.min(count as usize).max(1) as u64;
        let mut due = footprint.run.saturating_mul(side_by_side);
        if supplied {
            due = due.saturating_add(footprint.kept.saturating_mul(count.into()));
        }
        charge.grow(due.saturating_sub(charge.bytes), &what)?;
        if phase == PhaseMessage::Preprocess {
            let each = footprint.kept.saturating_add(footprint.correlated_ots);
            self.kept.grow(each.saturating_mul(count.into()), &what)?;
            self.preprocessed = preprocessed;
            self.each.insert(batch, each);
        }
        Ok(charge)
    }

    /// Counts what storing runs of `batch` samples takes, one at a time.
    pub fn take_one(&mut self, batch: usize) -> Result<Charge, String> {
        let what = format!("stored runs of {batch} sample(s)");
        let (mut charge, Footprint { run, kept, .. }) = self.footprint(batch, &what)?;
        charge.grow(run.saturating_add(kept).saturating_sub(charge.bytes), &what)?;
        Ok(charge)
    }

    /// Runs that were preprocessed have been used.
    pub fn used(&mut self, run: &Run) {
        if let (PhaseMessage::Online, Some(kept)) = (run.phase, self.each.get(&run.batch)) {
            self.kept.shrink(kept.saturating_mul(run.count.into()));
            self.preprocessed = self.preprocessed.saturating_sub(run.count as usize);
        }
    }

    /// What one run takes, on the lane on which that is most.
    fn footprint(&self, batch: usize, what: &str) -> Result<(Charge, Footprint), String> {
        let mut charge = self.memory.nothing(self.client);
        let mut most = Footprint { run: 0, kept: 0, correlated_ots: 0 };
        for (turn, &role) in self.roles.iter().enumerate() {
            let in_components = in_components(self.program, turn, self.trained);
            let footprint = self.footprint_of((role, &in_components), batch, (&mut charge, what))?;
            most.run = most.run.max(footprint.run);
            most.kept = most.kept.max(footprint.kept);
            most.correlated_ots = most.correlated_ots.max(footprint.correlated_ots);
        }
        Ok((charge, most))
    }

    /// What one run takes of a role, planned once. To plan it takes memory as well, about as much as its largest tensor, which is counted
    /// first.
    fn footprint_of(
        &self,
        (role, in_components): (usize, &[u32]),
        batch: usize,
        (charge, what): (&mut Charge, &str),
    ) -> Result<Footprint, String> {
        let options = Options { lanes: 1, roles: Roles::Fixed, ..self.options };
        let options = format!("{:?}", OptionsMessage::from(options));
        // Their number says which: all, those that the program's training job names, or none.
        let (program, form) = (self.program.hash().into(), (role, in_components.len()));
        let plan_of = (program, self.costs.name, options, batch, self.round_bits, form);
        let plans = || self.memory.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = plans().get(&plan_of).copied() {
            return Ok(known);
        }
        let largest = largest_tensor(self.program, self.costs, batch);
        charge.grow(largest.saturating_sub(charge.bytes), what)?;
        let planned = footprint(self.program, self.costs, self.options, batch, self.round_bits, (role, in_components));
        let planned = planned.map_err(|error| error.to_string())?;
        let mut plans = plans();
        if plans.len() == PLANS {
            plans.clear();
        }
        plans.insert(plan_of, planned);
        Ok(planned)
    }
}

/// The memory of this machine, or what this process may have of it, as Linux tells it.
fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(cgroup_limit(Path::new("/sys/fs/cgroup"), &own).map_or(total, |limit| limit.min(total)))
}

/// The smallest limit of the control groups that a process is in, from its own up to `root`. `own` is its `/proc/self/cgroup`: of the
/// unified hierarchy, `0::` and the group's path.
fn cgroup_limit(root: &Path, own: &str) -> Option<u64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
    let limit = |group: &Path| fs::read_to_string(root.join(group).join("memory.max")).ok()?.trim().parse::<u64>().ok();
    // The last ancestor is the empty path, the root itself.
    Path::new(path).ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use covey_program::{ProgramBuilder, op};
    use covey_protocols::trio::Trio;
    use covey_ring::Ring;

    use super::*;

    #[test]
    fn the_smallest_limit_on_the_way_to_the_own_group_holds() {
        let root = tempfile::TempDir::new().unwrap();
        let limits = |limits: &[(&str, &str)]| {
            for (group, limit) in limits {
                fs::create_dir_all(root.path().join(group)).unwrap();
                fs::write(root.path().join(group).join("memory.max"), limit).unwrap();
            }
        };
        let own = "0::/system.slice/covey.service\n";
        assert_eq!(cgroup_limit(root.path(), own), None);
        limits(&[("system.slice/covey.service", "2000\n"), ("system.slice", "max\n"), ("user.slice", "7\n")]);
        assert_eq!(cgroup_limit(root.path(), own), Some(2000));
        limits(&[("system.slice", "1000\n")]);
        assert_eq!(cgroup_limit(root.path(), own), Some(1000));
        limits(&[("", "500\n")]);
        assert_eq!(cgroup_limit(root.path(), own), Some(500));
        // A container sees its own group as the root.
        assert_eq!(cgroup_limit(root.path(), "0::/\n"), Some(500));
        assert_eq!(cgroup_limit(root.path(), "5:memory:/elsewhere\n"), Some(500));
    }

    /// Also when nothing is left to plan them again with.
    #[test]
    fn runs_that_were_used_are_charged_no_more() {
        let mut builder = ProgramBuilder::new("relu", Ring::Pow2(32));
        let x = builder.input("x", &[16], 8);
        builder.bound(x, 9);
        let y = builder.node("relu", op::Relu, &[x]);
        builder.output(y);
        let program = Arc::new(builder.build().unwrap());
        let budget = ClientBudget { memory: Some(64 * MIB), ..ClientBudget::default() };
        let key = format!("covey:{}", "1".repeat(64)).parse().unwrap();
        let client = AllowedClient { budget, ..AllowedClient::new("data", vec![key]) };
        let memory = Arc::new(Memory::new(&PartyBudget { memory: Some(128 * MIB), ..PartyBudget::default() }));
        let mut runs = Runs::new(
            &memory,
            &client,
            (&program, CostModel::of::<Trio<u32>>(), Options::default()),
            0,
            (vec![1], &[]),
        )
        .unwrap();
        let run = |phase, count| Run { phase, batch: 1, inference: 1, count, continues: false, ends: false };
        runs.take(&run(PhaseMessage::Preprocess, 3), false).unwrap();
        let kept = runs.kept.bytes;
        assert!(kept > 0 && runs.preprocessed == 3);
        memory.plans.lock().unwrap().clear();
        let _all = memory.take(&client, 64 * MIB - kept, "all").unwrap();
        runs.used(&run(PhaseMessage::Online, 2));
        assert_eq!((runs.kept.bytes, runs.preprocessed), (kept / 3, 1));
        runs.used(&run(PhaseMessage::Joint, 1));
        runs.used(&run(PhaseMessage::Online, 1));
        assert_eq!((runs.kept.bytes, runs.preprocessed), (0, 0));
    }
}
