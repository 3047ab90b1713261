//! The parties of a protocol and two clients on this machine, each with keys, configuration file and state folder of its own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use covey_client::{ClientConfig, ClientError, Inference, Session, SessionOptions, share_weights};
use covey_messages::PhaseMessage;
use covey_node::{PartyConfig, serve};
use covey_program::{Op, Program, ProgramBuilder, Rounding, Visibility, Weights, Window, op};
use covey_protocols::kind::ProtocolKind;
use covey_protocols::served::Part;
use covey_ring::{Ring, Tensor, fixed};
use covey_runtime::Profile;
use covey_runtime::clear::run_clear;
use covey_runtime::profile::NodeProfile;
use covey_transport::Identity;
use tempfile::TempDir;

pub const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
pub const DEALER: &str = "dealer";
pub const CLIENTS: [&str; 2] = ["owner", "data"];
/// Seconds in every configuration.
pub const TIMEOUT: f64 = 3.0;

/// Keys, files and, where started, parties as threads.
pub struct Cluster {
    pub folder: TempDir,
    pub protocol: ProtocolKind,
    /// What the parties are called, in role order.
    pub names: Vec<&'static str>,
    pub ports: Vec<u16>,
    fingerprints: BTreeMap<&'static str, String>,
    parties: Vec<Option<(Arc<AtomicBool>, JoinHandle<()>)>>,
}

impl Cluster {
    /// Files of Trio's only.
    pub fn new() -> Self {
        Cluster::of(ProtocolKind::Trio)
    }

    /// Files only.
    pub fn of(protocol: ProtocolKind) -> Self {
        Cluster::of_parties(protocol, 2)
    }

    /// Files only; so many parties compute where the protocol takes any number.
    pub fn of_parties(protocol: ProtocolKind, parties: usize) -> Self {
        let roles = protocol.sharing(parties).unwrap().roles;
        let names: Vec<&str> = roles
            .iter()
            .zip(NAMES.into_iter().chain([DEALER]))
            .map(|(part, name)| if *part == Part::Dealer { DEALER } else { name })
            .collect();
        let parties = names.len();
        let folder = TempDir::new().unwrap();
        let mut fingerprints = BTreeMap::new();
        for name in NAMES.into_iter().chain(CLIENTS).chain(["stranger", "other", "reader", DEALER]) {
            let identity = Identity::generate(name, 10).unwrap();
            identity.save(&folder.path().join(format!("{name}.key"))).unwrap();
            fingerprints.insert(name, identity.fingerprint().to_string());
        }
        let ports = free_ports(parties);
        let threads = (0..parties).map(|_| None).collect();
        let cluster = Cluster { folder, protocol, names, ports, fingerprints, parties: threads };
        for (party, name) in cluster.names.iter().enumerate() {
            cluster.write(&format!("{name}.toml"), &cluster.party_toml(party, &CLIENTS));
        }
        for client in CLIENTS.into_iter().chain(["stranger"]) {
            cluster.write(&format!("{client}.toml"), &cluster.client_toml(client, &cluster.roles()));
        }
        cluster
    }

    /// Trio's parties serving as threads.
    pub fn start() -> Self {
        Cluster::start_of(ProtocolKind::Trio)
    }

    /// Parties serving as threads.
    pub fn start_of(protocol: ProtocolKind) -> Self {
        Cluster::of(protocol).started()
    }

    /// With all its parties serving as threads.
    pub fn started(mut self) -> Self {
        self.roles().into_iter().for_each(|party| self.start_party(party));
        self
    }

    pub fn roles(&self) -> Vec<usize> {
        (0..self.ports.len()).collect()
    }

    pub fn start_party(&mut self, party: usize) {
        let config = PartyConfig::read(self.path(&format!("{}.toml", self.names[party]))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, listening) = mpsc::channel();
        let flag = stop.clone();
        let thread = std::thread::spawn(move || serve(config, move |_| ready.send(()).unwrap(), flag).unwrap());
        listening.recv_timeout(Duration::from_secs(20)).unwrap();
        self.parties[party] = Some((stop, thread));
    }

    pub fn stop_party(&mut self, party: usize) {
        if let Some((stop, thread)) = self.parties[party].take() {
            stop.store(true, Ordering::Release);
            thread.join().unwrap();
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn fingerprint(&self, name: &str) -> &str {
        &self.fingerprints[name]
    }

    pub fn party_toml(&self, party: usize, clients: &[&str]) -> String {
        let name = self.names[party];
        let mut text = format!(
            "[party]\n{}name = \"{name}\"\nlisten = \"127.0.0.1:{}\"\nkey = \"{name}.key\"\ntimeout = {TIMEOUT}\n",
            role(name),
            self.ports[party]
        );
        for other in (0..self.ports.len()).filter(|other| *other != party) {
            text += &format!("[[peer]]\n{}", self.peer_toml(self.names[other], self.ports[other]));
        }
        for client in clients {
            text += &format!("[[client]]\nname = \"{client}\"\nfingerprint = \"{}\"\n", self.fingerprint(client));
            text += "may = [\"share-weights\", \"share-data\", \"infer\", \"serve-weights\", \"fill-store\"]\n";
        }
        text
    }

    pub fn client_toml(&self, client: &str, roles: &[usize]) -> String {
        let mut text = format!("[client]\nname = \"{client}\"\nkey = \"{client}.key\"\ntimeout = {TIMEOUT}\n");
        for &party in roles {
            text += &format!("[[party]]\n{}", self.peer_toml(self.names[party], self.ports[party]));
        }
        text
    }

    pub fn peer_toml(&self, name: &str, port: u16) -> String {
        let fingerprint = self.fingerprint(name);
        format!("name = \"{name}\"\naddress = \"127.0.0.1:{port}\"\nfingerprint = \"{fingerprint}\"\n{}", role(name))
    }

    pub fn client(&self, name: &str) -> ClientConfig {
        ClientConfig::read(self.path(&format!("{name}.toml"))).unwrap()
    }

    pub fn share(&self, model: &Model) {
        share_weights(&self.client("owner"), &model.program, &model.weights, self.protocol, &mut |_, _| {}).unwrap();
    }

    pub fn open(&self, model: &Model) -> Result<Session, ClientError> {
        Session::open(&self.client("data"), &model.program, self.options())
    }

    pub fn options(&self) -> SessionOptions {
        SessionOptions { protocol: self.protocol, ..SessionOptions::default() }
    }

    /// Opens a session, which must fail, and gives the error's one line.
    pub fn refused(&self, model: &Model) -> String {
        self.without_paths(message(self.open(model).err().expect("a refusal")))
    }

    /// What a client hears, which must not say where a party's state folder is.
    pub fn without_paths(&self, told: String) -> String {
        assert!(!told.contains(&*self.folder.path().to_string_lossy()), "{told}");
        told
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (stop, _) in self.parties.iter().flatten() {
            stop.store(true, Ordering::Release);
        }
        (0..self.parties.len()).for_each(|party| self.stop_party(party));
    }
}

/// A party's configuration in which the last client has only these rights.
pub fn last_may(toml: &str, rights: &str) -> String {
    format!("{}may = [{rights}]\n", &toml[..toml.rfind("may = ").unwrap()])
}

/// The line that says that somebody of this name is a dealer.
fn role(name: &str) -> &'static str {
    if name == DEALER { "role = \"dealer\"\n" } else { "" }
}

/// An error's one line.
pub fn message(error: impl std::fmt::Display) -> String {
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// A program with weights.
pub struct Model {
    pub program: Program,
    pub weights: Weights,
}

/// Numbers that only look random, for weights and inputs of tests.
pub fn noise(seed: u64, count: usize, span: i64) -> Vec<i64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as i64 % span - span / 2
    };
    (0..count).map(|_| next()).collect()
}

/// Convolution, ReLU, max-pooling, a dense layer; `public_bias` makes the convolution's bias public.
pub fn cnn(name: &str, ring: Ring, public_bias: bool) -> Model {
    pooling(name, ring, public_bias, op::MaxPool { window: Window::square(2, 2, 0) })
}

/// The same with another pooling.
pub fn pooling(name: &str, ring: Ring, public_bias: bool, pool: impl Into<Op>) -> Model {
    let mut builder = ProgramBuilder::new(name, ring);
    let image = builder.input("image", &[1, 8, 8], 8);
    builder.bound(image, 9);
    builder.range(image, -1.0, 1.0);
    let kernel = builder.parameter("conv.weight", &[4, 1, 3, 3], 8);
    let bias = builder.parameter("conv.bias", &[4], 16);
    if public_bias {
        builder.value_mut(bias).visibility = Visibility::Public;
    }
    let dense = builder.parameter("fc.weight", &[64, 10], 8);
    let conv = op::Conv2d { window: Window::square(3, 1, 1), groups: 1 };
    let shift = op::Truncate { bits: 8, rounding: Rounding::Exact };
    let x = builder.node("conv", conv, &[image, kernel, bias]);
    let x = builder.node("conv", shift.clone(), &[x]);
    let x = builder.node("relu", op::Relu, &[x]);
    for id in [kernel, dense] {
        builder.bound(id, 10);
    }
    builder.bound(x, 20);
    let x = builder.node("pool", pool, &[x]);
    builder.bound(x, 20);
    let x = builder.reshape("flatten", x, &[64]);
    builder.bound(x, 20);
    let x = builder.node("fc", op::Dense, &[x, dense]);
    let x = builder.node("fc", shift, &[x]);
    builder.output(x);
    let program = builder.build().unwrap();
    let tensors = [("conv.weight", 36, 400), ("conv.bias", 4, 8000), ("fc.weight", 640, 400)];
    let tensors = tensors.into_iter().map(|(name, count, span)| (name.to_string(), noise(count as u64, count, span)));
    let weights = Weights::new(&program, tensors.collect()).unwrap();
    Model { program, weights }
}

/// Two convolutions, the second so wide that Quad checks its opening by combinations, max-pooling and a dense layer.
pub fn wide(name: &str) -> Model {
    let mut builder = ProgramBuilder::new(name, Ring::Pow2(32));
    let image = builder.input("image", &[1, 8, 8], 8);
    builder.bound(image, 9);
    builder.range(image, -1.0, 1.0);
    let first = builder.parameter("first.weight", &[128, 1, 3, 3], 8);
    let second = builder.parameter("second.weight", &[256, 128, 1, 1], 8);
    let dense = builder.parameter("fc.weight", &[4096, 10], 8);
    for id in [first, second, dense] {
        builder.bound(id, 6);
    }
    let shift = op::Truncate { bits: 8, rounding: Rounding::Exact };
    let conv = |window| op::Conv2d { window, groups: 1 };
    let x = builder.node("first", conv(Window::square(3, 1, 1)), &[image, first]);
    let x = builder.node("first", shift.clone(), &[x]);
    let x = builder.node("relu", op::Relu, &[x]);
    builder.bound(x, 12);
    let x = builder.node("second", conv(Window::square(1, 1, 0)), &[x, second]);
    let x = builder.node("second", shift.clone(), &[x]);
    let x = builder.node("relu", op::Relu, &[x]);
    builder.bound(x, 17);
    let x = builder.node("pool", op::MaxPool { window: Window::square(2, 2, 0) }, &[x]);
    builder.bound(x, 17);
    let x = builder.reshape("flatten", x, &[4096]);
    builder.bound(x, 17);
    let x = builder.node("fc", op::Dense, &[x, dense]);
    let x = builder.node("fc", shift, &[x]);
    builder.output(x);
    let program = builder.build().unwrap();
    let tensors = [("first.weight", 128 * 9, 100), ("second.weight", 256 * 128, 100), ("fc.weight", 40_960, 30)];
    let tensors = tensors.into_iter().map(|(name, count, span)| (name.to_string(), noise(count as u64, count, span)));
    let weights = Weights::new(&program, tensors.collect()).unwrap();
    Model { program, weights }
}

/// `batch` images.
pub fn images(seed: u64, batch: usize) -> (String, Vec<usize>, Vec<f64>) {
    let values = noise(seed, batch * 64, 500).into_iter().map(|v| v as f64 / 256.0).collect();
    ("image".into(), vec![batch, 1, 8, 8], values)
}

/// What the specification gives, as signed integers.
pub fn expected(model: &Model, input: &(String, Vec<usize>, Vec<f64>)) -> Vec<i64> {
    let ring = model.program.ring();
    let words: Vec<u64> = fixed::encode("image", &input.2, 8, ring, (-1.0, 1.0)).unwrap();
    let program = Arc::new(model.program.clone());
    let outcome = run_clear(&program, &model.weights, &[Tensor::new(input.1.clone(), words)]).unwrap();
    outcome.outputs[0].data().iter().map(|&word| ring.signed(word)).collect()
}

/// One inference, compared with the specification bit for bit.
pub fn infer_and_compare(
    session: &mut Session,
    model: &Model,
    phase: PhaseMessage,
    seed: u64,
    batch: usize,
) -> Inference {
    let input = images(seed, batch);
    let due = expected(model, &input);
    let inference = session.infer(phase, &[input], &mut |_| {}).unwrap();
    assert_eq!(inference.outputs[0].shape, [batch, 10]);
    assert_eq!(inference.outputs[0].integers, due);
    assert!(due.iter().any(|v| *v != due[0]), "the outputs say nothing");
    inference
}

/// Ports of this machine that are free, of which no two calls return the same. They are below those that the system gives to whoever
/// connects, so that nobody takes one before its party listens.
pub fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ports = std::iter::repeat_with(|| {
        (10_000 + (64 * std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000) as u16
    });
    ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(count).collect()
}

/// A party as a process; its log goes to `<name>.log`.
pub struct Process(pub Child);

impl Process {
    pub fn start(cluster: &Cluster, party: usize) -> Self {
        Process::start_logging(cluster, party, "info")
    }

    /// With a log as talkative as that.
    pub fn start_logging(cluster: &Cluster, party: usize, level: &str) -> Self {
        let name = cluster.names[party];
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(cluster.path(&format!("{name}.log"))).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_covey-party"))
            .arg("--config")
            .arg(cluster.path(&format!("{name}.toml")))
            .arg("--print-address")
            .env("COVEY_LOG", level)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        assert!(address.trim().ends_with(&cluster.ports[party].to_string()), "{name} did not start");
        Process(child)
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.0.id().to_string()).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn log(cluster: &Cluster, party: usize) -> String {
    std::fs::read_to_string(cluster.path(&format!("{}.log", cluster.names[party]))).unwrap_or_default()
}

/// A session whose runs take long enough to be interrupted: every link delays by 60 ms.
pub fn slow_session(cluster: &Cluster, model: &Model) -> Session {
    let text = cluster.client_toml("data", &cluster.roles()) + "[network]\nlatency_ms = 60\n";
    cluster.write("slow.toml", &text);
    let config = ClientConfig::read(cluster.path("slow.toml")).unwrap();
    Session::open(&config, &model.program, cluster.options()).unwrap()
}

/// Waits until `condition` holds, at most 20 s.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not happen within 20 s");
}

/// The one file in a state folder beside that which the party locks.
pub fn only_file(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !file.ends_with("lock"));
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// A folder and what is in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// What the profile says of correlated randomness: bytes, and where it came from.
pub fn material(inference: &Inference) -> (u64, String) {
    let merged = Profile::merged(inference.profiles.clone());
    let nodes: Vec<&NodeProfile> = merged.nodes.iter().filter(|node| node.name == "correlated randomness").collect();
    assert!(nodes.len() <= 1);
    nodes.first().map_or((0, String::new()), |node| (node.bytes(true) + node.bytes(false), node.op.clone()))
}

/// The one folder in a folder.
pub fn only_folder(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders.remove(0)
}
