//! Nodes in network namespaces, on a bridge or on a slow network: an agent and a server of an RP* file
//! on each.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::world::{Run, World, program};

/// Records of the file at first.
const RECORDS: u64 = 3_000;
/// Pages of the first bucket, which splits twice, and of the others, which do not.
const PAGES: (&str, &str) = ("14", "40");

/// A network, with a namespace for each node and one for clients.
pub struct Net {
    name: String,
    nodes: u32,
    /// What carries datagrams, if that is no bridge of the kernel.
    carrier: Option<Child>,
    /// Commands and answers travel over IPv6.
    is_ipv6: bool,
    /// The shares of records that were changed, in order.
    updates: RefCell<Vec<u32>>,
    records: RefCell<u64>,
}

/// An agent and a server.
pub struct Node {
    name: &'static str,
    bucket: u32,
    server: Child,
    agent: Child,
}

static NETS: AtomicU32 = AtomicU32::new(0);

const NAMES: [&str; 5] = ["one", "two", "three", "four", "five"];

fn number(name: &str) -> usize {
    NAMES.iter().position(|other| *other == name).unwrap() + 1
}

fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn ip(words: &str) {
    must(Command::new("ip").args(words.split(' ')));
}

/// A program of the testkit, which `cargo test` builds with the workspace.
fn example(name: &str) -> PathBuf {
    let path = program().parent().unwrap().join("examples").join(name);
    assert!(path.is_file(), "cargo build --package strongroom-testkit --examples");
    path
}

impl Net {
    pub fn new(nodes: u32) -> Self {
        Self::of_family(nodes, false).with_bridge()
    }

    pub fn of_ipv6(nodes: u32) -> Self {
        Self::of_family(nodes, true).with_bridge()
    }

    /// One that takes this many milliseconds for a datagram, each time others.
    pub fn slow(nodes: u32, milliseconds: Range<u32>) -> Self {
        Self::of_family(nodes, false).with_carrier(milliseconds)
    }

    fn of_family(nodes: u32, is_ipv6: bool) -> Self {
        let number = NETS.fetch_add(1, Ordering::Relaxed);
        let name = format!("sr{}-{number}", std::process::id());
        let (records, updates) = (RefCell::new(RECORDS), RefCell::default());
        Self { name, nodes, carrier: None, is_ipv6, updates, records }
    }

    /// The namespaces of the nodes, and the last one of clients.
    fn spaces(&self) -> impl Iterator<Item = u32> {
        1..=self.nodes + 1
    }

    fn with_bridge(self) -> Self {
        ip(&format!("netns add {}-hub", self.name));
        ip(&format!("-n {}-hub link add bridge0 type bridge", self.name));
        ip(&format!("-n {}-hub link set bridge0 up", self.name));
        for at in self.spaces() {
            let (space, hub) = (self.space(at), format!("{}-hub", self.name));
            ip(&format!("netns add {space}"));
            ip(&format!("-n {space} link add eth type veth peer name p{at} netns {hub}"));
            ip(&format!("-n {hub} link set p{at} master bridge0 up"));
            self.set_up(&space, at);
        }
        self
    }

    fn with_carrier(mut self, milliseconds: Range<u32>) -> Self {
        let card = |at| format!("{}c{at}", self.name);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cluster/slow_net.py");
        let mut command = Command::new("python3");
        command.arg(script).args([milliseconds.start, milliseconds.end].map(|ms| ms.to_string()));
        command.args(self.spaces().map(card)).stdout(Stdio::piped());
        let mut carrier = command.spawn().unwrap();
        expect_line(&mut carrier, "ready");
        for at in self.spaces() {
            let (space, card) = (self.space(at), card(at));
            ip(&format!("netns add {space}"));
            ip(&format!("link set {card} netns {space}"));
            ip(&format!("-n {space} link set {card} name eth"));
            self.set_up(&space, at);
        }
        self.carrier = Some(carrier);
        self
    }

    fn set_up(&self, space: &str, at: u32) {
        ip(&format!("-n {space} addr add 10.77.0.{at}/24 dev eth"));
        ip(&format!("-n {space} addr add fd77::{at}/64 dev eth nodad"));
        ip(&format!("-n {space} link set lo up"));
        ip(&format!("-n {space} link set eth up"));
        ip(&format!("-n {space} route add 224.0.0.0/4 dev eth"));
    }

    fn space(&self, at: u32) -> String {
        format!("{}-{at}", self.name)
    }

    fn inside(&self, at: u32, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(at)]).arg(program);
        command
    }

    /// From now on a share of the datagrams is lost on their way to each node and to clients. Streams
    /// repeat by themselves, which tests the kernel.
    pub fn lose(&self, percent: u32) {
        for at in self.spaces() {
            let rules = format!(
                "add table inet t; add chain inet t c {{ type filter hook input priority 0; }}; \
                 add rule inet t c meta l4proto udp numgen random mod 100 < {percent} drop"
            );
            must(Command::new("ip").args(["netns", "exec", &self.space(at), "nft", &rules]));
        }
    }

    pub fn address(&self, name: &str) -> String {
        let number = number(name);
        match self.is_ipv6 {
            true => format!("[fd77::{number}]:7420"),
            false => format!("10.77.0.{number}:7420"),
        }
    }

    pub fn add_to_cluster(&self, world: &World, names: &[&str], multicast: bool) {
        let folder = world.path("cluster").display().to_string();
        let mut args = vec!["ram".to_owned(), "cluster".to_owned(), "add".to_owned(), folder];
        args.extend(names.iter().map(|name| format!("{name}={}", self.address(name))));
        if multicast {
            let group = if self.is_ipv6 { "[ff05::7420]:7420" } else { "239.195.7.1:7420" };
            args.extend(["--multicast".to_owned(), group.to_owned()]);
        }
        world.run(&args).exits(0).says("added");
    }

    /// One of the first three: the first has all keys, the others are spare.
    pub fn node(&self, world: &World, name: &'static str) -> Node {
        let role = if name == "one" { "--first" } else { "--spare" };
        self.begin(world, name, u32::try_from(number(name)).unwrap() - 1, role)
    }

    pub fn spare(&self, world: &World, name: &'static str, bucket: u32) -> Node {
        self.begin(world, name, bucket, "--spare")
    }

    fn begin(&self, world: &World, name: &'static str, bucket: u32, role: &str) -> Node {
        let agent = self.agent(world, name);
        let pages = if bucket == 0 { PAGES.0 } else { PAGES.1 };
        let at = u32::try_from(number(name)).unwrap();
        let mut command = self.inside(at, &example("rp_node"));
        command.args(["--listen", &format!("10.77.0.{at}:5000"), "--bucket", &bucket.to_string()]);
        command.args([role, "--peers", &self.peers(), "--pages", pages, "--file", "sales"]);
        command.arg("--socket").arg(socket(world, name));
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        expect_line(&mut server, "ready");
        Node { name, bucket, server, agent }
    }

    fn agent(&self, world: &World, name: &str) -> Child {
        let at = u32::try_from(number(name)).unwrap();
        start_agent(world, name, self.inside(at, &program()))
    }

    /// Servers that there may ever be.
    fn peers(&self) -> String {
        let address = |at: u32| format!("10.77.0.{at}:5000");
        (1..=self.nodes).map(address).collect::<Vec<_>>().join(",")
    }

    fn client(&self, nodes: &[Node], verb: &str) -> Output {
        self.client_command(nodes, verb).output().unwrap()
    }

    fn client_command(&self, nodes: &[Node], verb: &str) -> Command {
        let servers: Vec<String> =
            nodes.iter().map(|node| format!("10.77.0.{}:5000", number(node.name))).collect();
        let updates: Vec<String> = self.updates.borrow().iter().map(ToString::to_string).collect();
        let mut command = self.inside(self.nodes + 1, &example("rp_client"));
        command.args(["--servers", &servers.join(","), "--updated", &updates.join(",")]);
        command.args(["--records", &self.records.borrow().to_string()]);
        command.args(verb.split(' '));
        command
    }

    fn must_client(&self, nodes: &[Node], verb: &str) {
        let output = self.client(nodes, verb);
        assert!(output.status.success(), "{verb}: {output:?}");
    }

    pub fn fill(&self, nodes: &[Node]) {
        self.must_client(nodes, "fill");
    }

    /// Changes a share of the records.
    pub fn update(&self, nodes: &[Node], percent: u32) {
        self.must_client(nodes, &format!("update {percent}"));
        self.updates.borrow_mut().push(percent);
    }

    /// Changes a share of the records while something else happens.
    pub fn start_update(&self, nodes: &[Node], percent: u32) -> Child {
        let mut command = self.client_command(nodes, &format!("update {percent}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until the records are changed.
    pub fn end_update(&self, updating: Child, percent: u32) {
        World::finish(updating).exits(0);
        self.updates.borrow_mut().push(percent);
    }

    /// Adds records until another bucket is needed.
    pub fn grow(&self, nodes: &[Node]) {
        self.records.replace_with(|records| *records * 9 / 5);
        // The same records again, and more.
        self.updates.borrow_mut().clear();
        self.must_client(nodes, "fill");
    }

    /// Every record is what it was.
    pub fn check(&self, nodes: &[Node]) {
        self.must_client(nodes, "check");
    }

    /// Some nodes are not there: no answer is wrong.
    pub fn check_with(&self, nodes: &[Node], what: &str) {
        let output = self.client(nodes, "status");
        assert!(output.status.success(), "{what}: {output:?}");
    }

    pub fn run(&self, world: &World, words: &str) -> Run {
        World::finish(self.start(world, words))
    }

    /// With a cluster of its own.
    pub fn run_with(&self, world: &World, args: &[&str]) -> Run {
        let mut command = self.inside(self.nodes + 1, &program());
        world.surround(&mut command);
        Run::of(command.args(["ram", "cluster"]).args(args).output().unwrap())
    }

    pub fn start(&self, world: &World, words: &str) -> Child {
        let mut command = self.inside(self.nodes + 1, &program());
        world.surround(&mut command);
        command.args(["ram", "cluster"]).args(words.split(' '));
        command.arg("--cluster").arg(world.path("cluster"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for at in self.spaces() {
            let _ = Command::new("ip").args(["netns", "del", &self.space(at)]).output();
        }
        let _ = Command::new("ip").args(["netns", "del", &format!("{}-hub", self.name)]).output();
        if let Some(mut carrier) = self.carrier.take() {
            let _ = carrier.kill();
            let _ = carrier.wait();
        }
    }
}

/// Starts the agent of a node, by a command that runs the program.
pub fn start_agent(world: &World, name: &str, mut command: Command) -> Child {
    world.surround(&mut command);
    command.args(["ram", "agent", "--host", name, "--node"]);
    command.arg(world.path(&format!("cluster/{name}.json")));
    command.arg("--socket").arg(socket(world, name));
    command.arg("--state").arg(world.path(&format!("state-{name}")));
    let mut agent = command.stdout(Stdio::piped()).spawn().unwrap();
    expect_line(&mut agent, "serving");
    agent
}

fn socket(world: &World, name: &str) -> PathBuf {
    world.path(&format!("{name}.sock"))
}

/// Waits for the first line of a program.
fn expect_line(child: &mut Child, word: &str) {
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.contains(word), "{line:?}");
    // What else it says is read, or it would be stopped by a full pipe.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
}

impl Node {
    /// The keys of its bucket, as they are shown.
    pub fn range(&self, net: &Net) -> String {
        let output = net.client(std::slice::from_ref(self), "status");
        let text = String::from_utf8(output.stdout).unwrap();
        let of_bucket = format!("bucket {} ", self.bucket);
        let line = text.lines().find(|line| line.contains(&of_bucket)).unwrap().to_owned();
        let (before, _) = line.split_once(" version ").unwrap();
        let (_, condition_and_range) = before.split_once(&of_bucket).unwrap();
        condition_and_range.split_once(' ').unwrap().1.to_owned()
    }

    /// All at once, as a power failure.
    pub fn kill(mut self) {
        self.end();
    }

    /// Its agent is killed and started again.
    pub fn restart_agent(&mut self, world: &World, net: &Net) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
        self.agent = net.agent(world, self.name);
    }

    fn end(&mut self) {
        for child in [&mut self.server, &mut self.agent] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}
