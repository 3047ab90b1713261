//! One run: four parties and a client as threads on a simulated network, one of them under rules; and what became of each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use covey_protocols::circuits::Adder;
use covey_protocols::parts::*;
use covey_protocols::quad::tampering::{Check, leave_out};
use covey_protocols::quad::{Quad, QuadClient, session_keys};
use covey_protocols::served::{ClientHalf, Served, StoredRun};
use covey_protocols::{Options, Phase, ProtocolError};
use covey_ring::Word;
use covey_transport::sim::{self, Line};
use covey_transport::{Network, PeerId};

use super::circuit::{CHECKS, OPENINGS, Secrets, Walk, publics, ring};
use super::wire::{Log, Rule, Spot, Wire};

/// Parties; the client's number.
pub const PARTIES: usize = 4;
/// Node of the client's input, which the client and the parties must enter alike.
pub const CLIENT_INPUT: u32 = 11;
/// Bytes of a digest.
pub const DIGEST: usize = 32;
/// After which a run counts as hanging. Waits in vain end by themselves, at once: nobody can send any more.
const LIMIT: Duration = Duration::from_secs(120);

/// What a run takes place in.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Bits of the ring: 32 or 64.
    pub ring: u32,
    /// How comparisons are done.
    pub adder: Adder,
    /// Preprocessing first.
    pub ahead: bool,
    /// Chooses all keys.
    pub session: u8,
    /// Which of two sets of secrets.
    pub secrets: i64,
    /// The check that nobody does.
    pub left_out: Option<Check>,
}

impl World {
    /// One to begin with.
    pub const fn new(ring: u32) -> Self {
        World { ring, adder: Adder::FewestBytes, ahead: false, session: 1, secrets: 0, left_out: None }
    }

    /// Bytes of a word.
    pub const fn word(self) -> usize {
        self.ring as usize / 8
    }
}

/// What the owner of the parameters gives one party that does not fit what it gives the others.
#[derive(Clone, Copy, Debug)]
pub struct Misfit {
    /// The party.
    pub party: usize,
    /// The number of the parameter, of the public ones where it is one of those; all if none.
    pub parameter: Option<usize>,
    /// What of it.
    pub what: Given,
}

/// What a party is given of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Given {
    /// Its words.
    Words,
    /// This one of its seeds.
    Seed(usize),
    /// Of a public parameter: its words, to whose first this is added.
    Public(u64),
}

/// Which of two stored runs is taken, both dealt ahead under the same keys: by others the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The cheater alone takes the second.
    Alone,
    /// It has all take the second, having seen the masks of both.
    ForAll,
}

/// Who cheats, and how.
#[derive(Clone, Debug, Default)]
pub struct Cheat {
    /// The cheaters: one party, or the client, or both.
    pub cheaters: Vec<PeerId>,
    /// What becomes of messages.
    pub rules: Vec<Rule>,
    /// What does not fit.
    pub misfits: Vec<Misfit>,
    /// Which stored run is taken, where any is.
    pub choice: Option<Choice>,
}

/// What became of a peer.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// What was opened to it.
    pub output: Vec<u64>,
    /// It came to its end.
    pub done: bool,
    /// Why it stopped.
    pub error: Option<String>,
    /// What each check said; none of one that was cut short.
    pub checks: Vec<bool>,
    /// It ended by a panic.
    pub panicked: bool,
}

/// What became of a run.
pub struct Run {
    /// Of each peer, the client last; none of one that did not end.
    pub ends: Vec<Option<End>>,
    /// What honest parties, and a cheater before its rules, sent.
    pub log: Vec<(Spot, Vec<u8>)>,
    /// Names of nodes.
    pub nodes: Vec<&'static str>,
    /// Whether a rule changed anything.
    pub changed: bool,
}

impl Run {
    /// Whether `peer` sent part of an opening.
    pub fn opened(&self, peer: PeerId) -> bool {
        self.log.iter().any(|(spot, _)| spot.from == peer && spot.node >= OPENINGS)
    }

    /// What `peer` said in checks beside digests: verdicts and echoes.
    pub fn said(&self, peer: PeerId) -> Vec<(Spot, Vec<u8>)> {
        let said =
            |(spot, bytes): &&(Spot, Vec<u8>)| spot.from == peer && CHECKS.contains(&spot.node) && bytes.len() < DIGEST;
        self.log.iter().filter(said).cloned().collect()
    }
}

struct Job {
    me: PeerId,
    world: World,
    network: Arc<dyn Network>,
    cheats: bool,
    rules: Arc<Vec<Rule>>,
    misfits: Vec<Misfit>,
    choice: Option<Choice>,
    log: Log,
    changed: Arc<Mutex<bool>>,
}

/// Runs the program in `world` under `cheat`.
pub fn run(world: World, cheat: &Cheat) -> Run {
    let options = sim::Options { clients: 1, timeout: LIMIT, at_rest: true, ..sim::Options::new(PARTIES, Line::LAN) };
    let networks: Vec<Arc<dyn Network>> =
        sim::network(options).into_iter().map(|network| Arc::new(network) as Arc<dyn Network>).collect();
    let (log, changed) = (Log::default(), Arc::new(Mutex::new(!cheat.misfits.is_empty() || cheat.choice.is_some())));
    let (report, ended) = channel();
    for network in &networks {
        let me = network.me();
        let cheats = cheat.cheaters.contains(&me);
        let rules = if cheats { cheat.rules.clone() } else { Vec::new() };
        let job = Job {
            me,
            world,
            network: network.clone(),
            cheats,
            rules: Arc::new(rules),
            misfits: cheat.misfits.clone(),
            choice: cheat.choice,
            log: log.clone(),
            changed: changed.clone(),
        };
        let report = report.clone();
        thread::spawn(move || match world.ring {
            64 => job.report::<u64>(&report),
            _ => job.report::<u32>(&report),
        });
    }
    let (ends, nodes) = collect(&ended, &*networks[0]);
    let log = std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner));
    let changed = *changed.lock().unwrap_or_else(PoisonError::into_inner);
    Run { ends, log, nodes, changed }
}

type Report = (PeerId, End, Vec<&'static str>);

/// Waits for all. Who fails a check keeps silent, as if what it tells the others came late; the client is told once all parties ended.
fn collect(ended: &Receiver<Report>, network: &dyn Network) -> (Vec<Option<End>>, Vec<&'static str>) {
    let mut ends: Vec<Option<End>> = vec![None; PARTIES + 1];
    let (mut nodes, start) = (Vec::new(), Instant::now());
    while ends.iter().any(Option::is_none) {
        match ended.recv_timeout(LIMIT.saturating_sub(start.elapsed())) {
            Ok((peer, end, names)) => {
                ends[peer] = Some(end);
                nodes = if peer == PARTIES { nodes } else { names };
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
        let parties = &ends[..PARTIES];
        if parties.iter().all(Option::is_some) && parties.iter().flatten().any(|end| end.error.is_some()) {
            network.abort(Some(network.me()), "a check failed");
        }
    }
    (ends, nodes)
}

impl Job {
    fn report<W: Word>(self, report: &Sender<Report>) {
        let mut end = End::default();
        let mut nodes = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| match self.me {
            PARTIES => self.client::<W>(&mut end),
            _ => self.party::<W>(&mut end, &mut nodes),
        }));
        match result {
            Ok(Ok(())) => end.done = true,
            Ok(Err(error)) => end.error = Some(error.to_string()),
            Err(_) => end.panicked = true,
        }
        // The run may be over already: it was given up.
        let _ = report.send((self.me, end, nodes));
    }

    fn options(&self) -> Options {
        Options { adder: self.world.adder, tile: 1 << 12, window: 2, ..Options::default() }
    }

    /// What a cheater finds does not stop it.
    fn choose_checks(&self) {
        let ignored = [Check::Own, Check::Opening, Check::ClientSeeds, Check::ClientOutput];
        let ignored = ignored.into_iter().filter(|_| self.cheats);
        leave_out(ignored.chain(self.world.left_out).collect());
    }

    fn wire(&self) -> Result<Box<Wire>, ProtocolError> {
        let (rules, log, changed) = (self.rules.clone(), self.log.clone(), self.changed.clone());
        Ok(Box::new(Wire::new(self.network.endpoint(0)?, self.world.word(), rules, log, changed)))
    }

    fn party<W: Word>(&self, end: &mut End, nodes: &mut Vec<&'static str>) -> Result<(), ProtocolError> {
        self.choose_checks();
        let session = self.world.session;
        let keys = [2, 1, 3, 0].map(|missing| {
            Some(blake3::derive_key("covey conformance 2026 keys of three, adversary", &[missing, session]))
        });
        let keys = session_keys(self.me, keys);
        let mut party = Quad::<W>::start(self.wire()?, keys.clone(), ring::<W>(), self.options(), 0)?;
        let secrets = Secrets::new(self.world.secrets);
        let mut dealt = secrets.dealt::<W>();
        let mut publics = publics::<W>();
        for misfit in self.misfits.iter().filter(|misfit| misfit.party == self.me) {
            let is_meant = |number: &usize| misfit.parameter.is_none_or(|only| only == *number);
            let raise = |words: &mut [W], by: u64| {
                words.iter_mut().take(1).for_each(|word| *word = word.add(W::from_u64(by)));
            };
            if let Given::Public(by) = misfit.what {
                (0..publics.len()).filter(is_meant).for_each(|number| raise(publics[number].data_mut(), by));
                continue;
            }
            for number in (0..dealt.len()).filter(is_meant) {
                let own = &mut dealt[number][self.me];
                if let Given::Seed(seed) = misfit.what {
                    own.seeds[seed][0] ^= 1;
                } else {
                    let mut words = own.words.as_deref().unwrap_or_default().to_vec();
                    raise(&mut words, 5);
                    own.words = Some(words.into());
                }
            }
        }
        let runs: &[(Phase, u64)] = match (self.choice, self.world.ahead) {
            (Some(_), _) => &[(Phase::Preprocess, 1), (Phase::Preprocess, 2), (Phase::Online, 3)],
            (None, true) => &[(Phase::Preprocess, 1), (Phase::Online, 1)],
            (None, false) => &[(Phase::Joint, 1)],
        };
        for &(phase, number) in runs {
            if let Some(choice) = self.choice.filter(|_| phase == Phase::Online) {
                let run = if self.cheats || choice == Choice::ForAll { 2 } else { 1 };
                let material = party.take_run(run).ok_or(ProtocolError::StoreEmpty)?;
                let (keys, lasting) = (keys.of_run(run, 0), Some(keys.lasting()));
                party.supply_run(number, StoredRun { keys, lasting, material });
            }
            party.begin(phase, number)?;
            let mut walk = Walk { party: &mut party, me: self.me, nodes: Vec::new() };
            let results = walk.gates(&secrets, &dealt, &publics, &mut end.checks)?;
            let checked = walk.check(&mut end.checks)?;
            nodes.clone_from(&walk.nodes);
            walk.open(&results, &checked, &mut end.output)?;
            if phase == Phase::Preprocess {
                // What is checked and opened in such a run means nothing.
                end.checks.clear();
                end.output.clear();
            }
        }
        Ok(())
    }

    fn client<W: Word>(&self, end: &mut End) -> Result<(), ProtocolError> {
        self.choose_checks();
        let mut client = QuadClient::<W>::new(self.wire()?, ring::<W>(), self.options());
        client.enter(CLIENT_INPUT);
        client.send(&Secrets::new(self.world.secrets).of_the_client())?;
        client.enter(OPENINGS + 2);
        let received = client.receive(&[super::circuit::RESULTS])?;
        end.output = received.data().iter().map(|&word| word.to_u64()).collect();
        Ok(())
    }
}
