//! Three real processes, each in a network namespace of its own, joined by a bridge in a fourth; trouble is nftables rules inside them.
//!
//! Callers come from the driver's own address and peers from the nodes' addresses, so rules on a source address trouble peers
//! and never callers. Names carry the run's id; nodes end when the driver's end of their stdin closes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::Pid;

use crate::history::Node;
use crate::nodes::{Backend, Link, Trouble};

/// What every namespace and interface made here begins with.
const PREFIX: &str = "hxj";
/// How many nodes there are.
const NODES: u64 = 3;
/// Where Debian puts libfaketime.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
/// How long a change of a process or a clock may take to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(10);
/// How long a probe waits for an answer: much longer than one takes.
const PROBE_WITHIN: Duration = Duration::from_millis(500);
/// Pause between looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The cluster. Dropping it ends its processes and removes its namespaces and its bridge; files stay.
#[derive(Debug)]
pub struct Netns {
    binary: PathBuf,
    home: PathBuf,
    run: String,
    token: String,
    children: Mutex<BTreeMap<u64, Child>>,
    troubles: Mutex<BTreeMap<(u64, u64), Trouble>>,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn command(program: &str, arguments: &[&str], input: &str) -> Result<Output> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{program} is not installed: scripts/install-deps test"))?;
    child.stdin.take().context("no stdin")?.write_all(input.as_bytes())?;
    Ok(child.wait_with_output()?)
}

fn must(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let output = command(program, arguments, input)?;
    ensure!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until `look` says yes.
fn seen(what: &str, mut look: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < SEEN_WITHIN {
        if look()? {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    bail!("not seen within {SEEN_WITHIN:?}: {what}")
}

/// Removes the namespaces of one run, or of all runs, with the processes and the ends of links in them.
///
/// # Errors
/// Something could not be listed or removed.
pub fn cleanup(run: Option<&str>) -> Result<Vec<String>> {
    // The hyphen ends the id, so that run 12 does not remove what run 123 made.
    let prefix = run.map_or_else(|| PREFIX.to_owned(), |run| format!("{PREFIX}{run}-"));
    let mut removed = Vec::new();
    for name in must("ip", &["netns", "list"], "")?.lines().filter_map(|line| line.split_whitespace().next()) {
        if name.starts_with(&prefix) {
            for pid in must("ip", &["netns", "pids", name], "")?.split_whitespace() {
                // It may have ended by itself since it was listed.
                let _ = kill(Pid::from_raw(pid.parse()?), Signal::SIGKILL);
            }
            must("ip", &["netns", "del", name], "")?;
            removed.push(name.to_owned());
        }
    }
    Ok(removed)
}

impl Netns {
    /// Makes the namespaces and the configuration of three nodes; none runs yet.
    ///
    /// # Errors
    /// Not root, a tool is missing, or `home` is in memory, where a sync proves nothing.
    pub fn new(binary: &Path, home: &Path, run: &str) -> Result<Self> {
        ensure!(
            fs::metadata("/proc/self")?.uid() == 0,
            "network namespaces need root: run this as root or with sudo"
        );
        ensure!(binary.is_file(), "{} is not built; `make build` does, or set HAPAX_BIN", binary.display());
        ensure!(run.len() <= 8, "a run's id has at most 8 characters: interface names are short");
        fs::create_dir_all(home)?;
        ensure!(!home.join("node-1").exists(), "{} holds a run already; name another folder", home.display());
        ensure!(
            statfs(home)?.filesystem_type() != TMPFS_MAGIC,
            "{} is in memory; name a folder on a disk",
            home.display()
        );
        let (home, binary) = (home.canonicalize()?, binary.canonicalize()?);
        let random = || -> Result<String> { Ok(crate::smoke::uuid()?.replace('-', "")) };
        let token = format!("hpx_{}_{}{}", &random()?[..20], random()?, random()?);
        let made =
            Self { binary, home, run: run.to_owned(), token, children: Mutex::default(), troubles: Mutex::default() };
        made.network()?;
        for id in 1..=NODES {
            made.configure(id)?;
        }
        Ok(made)
    }

    fn space(&self, id: u64) -> String {
        format!("{PREFIX}{}-{id}", self.run)
    }

    fn host(&self, host: u64) -> Ipv4Addr {
        // A run has a /24 of its own, so that a run left behind does not answer for this one.
        let sum = self.run.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
        Ipv4Addr::new(10, (64 + sum / 251 % 64) as u8, (sum % 251) as u8, host as u8)
    }

    fn address(&self, host: u64) -> String {
        self.host(host).to_string()
    }

    /// The bridge stands in a namespace of its own: in the machine's, the rules that Docker makes would meet what it carries.
    fn network(&self) -> Result<()> {
        let (hub, outside) = (self.space(0), format!("{PREFIX}{}-h", self.run));
        must("ip", &["netns", "add", &hub], "")?;
        must("ip", &["-n", &hub, "link", "add", "bridge", "type", "bridge"], "")?;
        must("ip", &["-n", &hub, "link", "set", "bridge", "up"], "")?;
        must("ip", &["link", "add", &outside, "type", "veth", "peer", "name", "driver", "netns", &hub], "")?;
        must("ip", &["-n", &hub, "link", "set", "driver", "master", "bridge", "up"], "")?;
        must("ip", &["addr", "add", &format!("{}/24", self.address(1)), "dev", &outside], "")?;
        must("ip", &["link", "set", &outside, "up"], "")?;
        for id in 1..=NODES {
            let (space, port) = (self.space(id), format!("node-{id}"));
            must("ip", &["netns", "add", &space], "")?;
            must(
                "ip",
                &["-n", &hub, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space],
                "",
            )?;
            must("ip", &["-n", &hub, "link", "set", &port, "master", "bridge", "up"], "")?;
            let address = format!("{}/24", self.address(10 + id));
            must("ip", &["-n", &space, "addr", "add", &address, "dev", "eth0"], "")?;
            must("ip", &["-n", &space, "link", "set", "eth0", "up"], "")?;
            must("ip", &["-n", &space, "link", "set", "lo", "up"], "")?;
        }
        Ok(())
    }

    fn folder(&self, id: u64) -> PathBuf {
        self.home.join(format!("node-{id}"))
    }

    fn configure(&self, id: u64) -> Result<()> {
        let peers = (1..=NODES).map(|peer| {
            let address = self.address(10 + peer);
            format!("\"{peer}={address}:7111@region-{peer}@http://{address}:7101\"")
        });
        let folder = self.folder(id);
        fs::create_dir_all(&folder)?;
        let text = format!(
            "[node]\nid = {id}\nregion = \"region-{id}\"\ndata_dir = \"{}\"\n\
             [listen]\nclient = \"0.0.0.0:7101\"\npeer = \"0.0.0.0:7111\"\nmetrics = \"0.0.0.0:7121\"\n\
             [cluster]\nname = \"jepsen\"\npeers = [{}]\nbootstrap = {}\n\
             [bootstrap]\ntenant = \"dev\"\n[[bootstrap.namespaces]]\nname = \"default\"\n\
             [[bootstrap.namespaces]]\nname = \"takeover\"\non_lapse = \"takeover\"\n",
            folder.join("data").display(),
            peers.collect::<Vec<_>>().join(", "),
            id == 1
        );
        fs::write(folder.join("hapax.toml"), text)?;
        fs::write(folder.join("clock"), "+0s\n")?;
        Ok(())
    }

    fn pid(&self, node: Node) -> Result<u32> {
        held(&self.children).get(&node.0).map(Child::id).with_context(|| format!("node {} does not run", node.0))
    }

    fn state(&self, node: Node) -> Result<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid(node)?))?;
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).context("no state in /proc")
    }

    fn signal(&self, node: Node, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid(node)?)?), signal)?)
    }

    /// Writes the rules of one node anew, in one transaction.
    fn rules(&self, to: u64) -> Result<()> {
        let mut lines = String::new();
        for ((from, _), trouble) in held(&self.troubles).iter().filter(|((_, target), _)| *target == to) {
            let verb = match trouble {
                Trouble::Blackhole => "counter drop".to_owned(),
                Trouble::Reset => "meta l4proto tcp counter reject with tcp reset".to_owned(),
                Trouble::Loss(share) => format!("numgen random mod 1000 < {} counter drop", (share * 1_000.0) as u32),
                Trouble::Delay { .. } => bail!("this backend cannot delay yet: the kernel has no netem"),
            };
            lines += &format!("ip saddr {} {verb}\n", self.address(10 + from));
        }
        let text = format!(
            "table inet jepsen\ndelete table inet jepsen\ntable inet jepsen {{\nchain input {{\n\
             type filter hook input priority 0; policy accept;\n{lines}}}\n}}\n"
        );
        must("ip", &["netns", "exec", &self.space(to), "nft", "-f", "-"], &text)?;
        Ok(())
    }

    /// Whether a new connection from one node to another's peer port is answered at all, by acceptance or refusal.
    fn probe(&self, from: u64, to: u64) -> Result<bool> {
        let to = SocketAddr::from((self.host(10 + to), 7111));
        let space = File::open(Path::new("/run/netns").join(self.space(from)))?;
        // A thread of its own, since it stays in the namespace that it enters.
        let connecting = std::thread::spawn(move || {
            setns(space, CloneFlags::CLONE_NEWNET)?;
            Ok::<_, Errno>(TcpStream::connect_timeout(&to, PROBE_WITHIN))
        });
        match connecting.join().map_err(|_| anyhow!("the probe's thread panicked"))?? {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error).context("a probe between nodes"),
        }
    }

    /// Looks whether a trouble is there: a cut link answers no probe, and the rule of any other is listed and counts.
    fn look(&self, from: u64, to: u64, trouble: Trouble) -> Result<()> {
        let answered = self.probe(from, to)?;
        if trouble == Trouble::Blackhole {
            ensure!(!answered, "node {to} still answers node {from}");
            return Ok(());
        }
        let listed = must("ip", &["netns", "exec", &self.space(to), "nft", "list", "table", "inet", "jepsen"], "")?;
        let address = format!("ip saddr {} ", self.address(10 + from));
        let rule = listed.lines().find(|line| line.contains(&address)).context("the rule is not listed")?;
        ensure!(trouble != Trouble::Reset || !rule.contains("packets 0 "), "the rule has met no packet: {rule}");
        Ok(())
    }

    fn wall(&self, node: Node) -> Result<f64> {
        let address = format!("{}:7121", self.address(10 + node.0)).parse()?;
        let text = crate::http::text(address, "/metrics", Duration::from_secs(2))?;
        let line = text.lines().find_map(|line| line.strip_prefix("hapax_wall_clock_seconds "));
        Ok(line.context("no hapax_wall_clock_seconds")?.trim().parse()?)
    }
}

impl Backend for Netns {
    fn name(&self) -> &'static str {
        "netns"
    }

    fn nodes(&self) -> Vec<Node> {
        (1..=NODES).map(Node).collect()
    }

    fn url(&self, node: Node) -> String {
        format!("http://{}:7101", self.address(10 + node.0))
    }

    fn token(&self) -> String {
        self.token.clone()
    }

    fn start(&self, node: Node) -> Result<()> {
        let mut children = held(&self.children);
        ensure!(!children.contains_key(&node.0), "node {} runs already", node.0);
        let folder = self.folder(node.0);
        let log = File::options().create(true).append(true).open(folder.join("hapax.log"))?;
        let mut start = Command::new("ip");
        start.args(["netns", "exec", &self.space(node.0)]).arg(&self.binary);
        start.args(["serve", "--until-stdin-closes", "--config"]).arg(folder.join("hapax.toml"));
        start.env("HAPAX_AUTH__BOOTSTRAP_TOKEN", &self.token);
        if Path::new(FAKETIME).is_file() {
            start.env("LD_PRELOAD", FAKETIME).env("FAKETIME_TIMESTAMP_FILE", folder.join("clock"));
            // Without the first, a jump of the wall would be a jump of the monotonic clock too, which no machine has.
            start.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_NO_CACHE", "1");
        }
        let child = start.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()?;
        children.insert(node.0, child);
        Ok(())
    }

    fn kill(&self, node: Node) -> Result<()> {
        self.signal(node, Signal::SIGKILL)?;
        if let Some(mut child) = held(&self.children).remove(&node.0) {
            child.wait()?;
        }
        Ok(())
    }

    fn pause(&self, node: Node) -> Result<()> {
        self.signal(node, Signal::SIGSTOP)?;
        seen("a stopped process", || Ok(self.state(node)? == 'T'))
    }

    fn resume(&self, node: Node) -> Result<()> {
        self.signal(node, Signal::SIGCONT)?;
        seen("a running process", || Ok(self.state(node)? != 'T'))
    }

    fn runs(&self, node: Node) -> Result<bool> {
        let mut children = held(&self.children);
        let Some(child) = children.get_mut(&node.0) else { return Ok(false) };
        let ended = child.try_wait()?.is_some();
        if ended {
            children.remove(&node.0);
        }
        Ok(!ended)
    }

    fn trouble(&self, link: Link, trouble: Trouble) -> Result<()> {
        ensure!(!matches!(trouble, Trouble::Delay { .. }), "this backend cannot delay yet: the kernel has no netem");
        let directions = match link {
            Link::OneWay(from, to) => vec![(from.0, to.0)],
            Link::Both(one, other) => vec![(one.0, other.0), (other.0, one.0)],
        };
        for direction in &directions {
            held(&self.troubles).insert(*direction, trouble);
            self.rules(direction.1)?;
        }
        directions.iter().try_for_each(|(from, to)| self.look(*from, *to, trouble))
    }

    fn heal(&self) -> Result<()> {
        held(&self.troubles).clear();
        (1..=NODES).try_for_each(|to| self.rules(to))?;
        for (from, to) in (1..=NODES).flat_map(|from| (1..=NODES).map(move |to| (from, to))) {
            ensure!(from == to || self.probe(from, to)?, "node {to} does not answer node {from} after healing");
        }
        Ok(())
    }

    fn set_clock(&self, node: Node, offset_ms: i64) -> Result<()> {
        ensure!(Path::new(FAKETIME).is_file(), "{FAKETIME} is missing: scripts/install-deps test");
        let (staged, file) = (self.folder(node.0).join("clock.staged"), self.folder(node.0).join("clock"));
        fs::write(&staged, format!("{:+.3}s\n", offset_ms as f64 / 1_000.0))?;
        fs::rename(staged, file)?;
        seen("the clock that was set", || {
            let off = self.wall(node)? - SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
            Ok((off - offset_ms as f64 / 1_000.0).abs() <= 3.0)
        })
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        for child in held(&self.children).values_mut() {
            // SIGKILL ends a paused process too; one that has ended already is no loss.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = cleanup(Some(&self.run));
    }
}
