//! Real redis-servers for the controller's own steps, without Kubernetes: one per loopback address, with users like those
//! the agent renders. Each caller has its own third octet, so that tests run side by side.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a harness: what fails here fails the test, and the names say what they are"
)]

mod pods;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::api::Kubernetes;
use controller::build::build;
use controller::cache::Caches;
use controller::credentials::{Issuer, SystemIssuer};
use controller::execute::migrate::{self, Bucket};
use controller::execute::{Done, Error, Executed, World, execute, settle};
use controller::gather::Gathered;
use controller::lease::Guard;
use controller::probe::agent::Agents;
use controller::probe::{Container, Memory, Place, Probed, Question, probe};
use controller::redis::{self, Access};
use controller::resolve::{self, Resolved, resolve};
use plan::{Desired, Limits, NodeId, Plan, Pod, Seen, SlotSet};
use resp::{ClusterClient, Connection, Credentials, Options, Role};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::{Child, Command};

pub use pods::Pods;

/// How long the servers wait for each other, in milliseconds. Where the machine stands still for longer they replace each other without any
/// fault of ours, and ordinals are not who they were.
#[must_use]
pub fn node_timeout_millis() -> u64 {
    u64::try_from(hung::node_timeout(10).as_millis()).unwrap()
}

/// After so long a replica does not go by an order to take over any more.
const ORDER: Duration = Duration::from_secs(6);

pub const OPERATOR: &str = "operator-pw";
pub const APPLICATION: &str = "application-pw";

/// What the agent renders for these users; that ours suffices for us is part of what these tests show.
const ACL: &str = "\
user default on >application-pw ~* &* +@all -@admin -@dangerous +info +keys +flushdb +flushall
user kun-operator on >operator-pw ~* resetchannels &kun:bus -@all +publish +ping +role +info +wait +dbsize +auth +hello +select +migrate +client|list \
+restore +restore-asking +asking +memory|usage +config|get +config|set +cluster|info +cluster|nodes +cluster|myid \
+cluster|countkeysinslot +cluster|getkeysinslot +cluster|meet +cluster|forget +cluster|replicate +cluster|failover \
+cluster|setslot +cluster|addslots +cluster|addslotsrange +cluster|set-config-epoch +cluster|bumpepoch +function|list \
+function|load
user kun-replica on >replica-pw resetkeys resetchannels -@all +ping +psync +replconf
user fault on >fault-pw resetkeys resetchannels -@all +ping +auth +hello +select +cluster|delslotsrange
";

/// One redis-server.
pub struct Server {
    pub address: SocketAddr,
    /// What it is started with.
    pub node_timeout_millis: u64,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Server {
    pub async fn start(net: u8, host: u8) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 85, net, host));
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("users.acl"), ACL.replace("\\\n", "")).unwrap();
        let (address, node_timeout_millis) = (SocketAddr::new(ip, 6379), node_timeout_millis());
        let mut server = Self { address, node_timeout_millis, dir, child: None };
        server.run().await;
        server
    }

    /// Starts the process (again) on the same directory.
    pub async fn run(&mut self) {
        let ip = self.address.ip().to_string();
        let node_timeout = self.node_timeout_millis.to_string();
        let flags: &[(&str, &str)] = &[
            ("bind", &ip),
            ("bind-source-addr", &ip),
            ("port", "6379"),
            ("cluster-enabled", "yes"),
            ("cluster-announce-ip", &ip),
            ("cluster-node-timeout", &node_timeout),
            ("cluster-allow-replica-migration", "no"),
            ("cluster-require-full-coverage", "no"),
            ("cluster-replica-validity-factor", "0"),
            ("repl-diskless-sync-delay", "0"),
            ("appendonly", "yes"),
            ("save", ""),
            ("aclfile", "users.acl"),
            ("masteruser", "kun-replica"),
            ("masterauth", "replica-pw"),
            ("loglevel", "warning"),
        ];
        let mut command = Command::new("redis-server");
        for (name, value) in flags {
            command.arg(format!("--{name}")).arg(value);
        }
        command.current_dir(self.dir.path()).kill_on_drop(true).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let begun = Instant::now();
        while Connection::open(&self.options("kun-operator", OPERATOR)).await.is_err() {
            assert!(begun.elapsed() < hung::process(), "{} does not answer", self.address);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A process that was killed comes back at another address, as a pod does.
    pub async fn run_at(&mut self, address: SocketAddr) {
        self.address = address;
        self.run().await;
    }

    /// The process ends and comes back, and the controller's user may not send this any more.
    pub async fn run_without(&mut self, command: &str) {
        self.kill().await;
        self.change_users(&format!("+{command}"), "");
        self.run().await;
    }

    /// From the next start on.
    fn change_users(&self, from: &str, to: &str) {
        let path = self.dir.path().join("users.acl");
        let users = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, users.replace(from, to)).unwrap();
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        if let Some(child) = self.child.as_mut() {
            child.kill().await.unwrap();
        }
    }

    /// SIGSTOP: connections stay, and nothing is read from them.
    pub fn hold(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().and_then(Child::id).unwrap();
        kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), signal).unwrap();
    }

    /// What a volume holds of a node: who it is, and its data.
    fn volume(&self) -> [std::path::PathBuf; 2] {
        ["nodes.conf", "appendonlydir"].map(|name| self.dir.path().join(name))
    }

    /// The process ends and its volume is emptied; it starts as somebody new.
    pub async fn wipe(&mut self) {
        self.kill().await;
        let [table, log] = self.volume();
        std::fs::remove_file(table).unwrap();
        std::fs::remove_dir_all(log).unwrap();
        self.run().await;
    }

    /// As [`Server::wipe`], and as somebody new it lets no replica in: agents see to that.
    pub async fn wipe_closed(&mut self) {
        self.change_users("kun-replica on", "kun-replica off");
        self.wipe().await;
    }

    /// Something is where its snapshots go.
    pub fn takes_no_snapshot(&self) {
        std::fs::create_dir_all(self.dir.path().join("dump.rdb/in-the-way")).unwrap();
    }

    /// How often this word stands in what it has logged of commands that changed something.
    pub fn logged(&self, word: &str) -> usize {
        let [_, log] = self.volume();
        let files = std::fs::read_dir(log).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
        files.map(|text| String::from_utf8_lossy(&text).matches(word).count()).sum()
    }

    /// Its table gives these slots to nobody, as before it heard whose they are.
    pub async fn unhears(&self, slots: &SlotSet) {
        let mut redis = Connection::open(&self.options("fault", "fault-pw")).await.unwrap();
        for (first, last) in slots.ranges() {
            redis.call(&["CLUSTER", "DELSLOTSRANGE", &first.to_string(), &last.to_string()]).await.unwrap();
        }
    }

    /// A test that asks waits longer than the product does: a machine that stands still for a while is no answer.
    fn options(&self, user: &str, password: &str) -> Options {
        let mut options =
            Options::new(self.address).credentials(Credentials::new(user, password)).deadline(hung::answer());
        options.connect_timeout = hung::answer();
        options
    }

    pub async fn application(&self) -> Connection {
        Connection::open(&self.options("default", APPLICATION)).await.unwrap()
    }

    pub async fn operator(&self) -> Connection {
        Connection::open(&self.options("kun-operator", OPERATOR)).await.unwrap()
    }

    pub async fn id(&self) -> NodeId {
        let id = self.operator().await.my_id().await.unwrap();
        NodeId::parse(id.as_str()).unwrap()
    }
}

/// A cluster of real servers, looked at and worked on by the controller's own steps, without Kubernetes.
pub struct Fleet {
    pub servers: BTreeMap<Pod, Server>,
    pub resolved: Resolved,
    pub memory: Memory,
    pub limits: Limits,
    /// How old looks are for the steps that follow them, however long a machine stands still in between.
    pub aged: Duration,
    pub pods: Pods,
    gathered: Gathered,
    agents: Agents,
    kubernetes: Kubernetes,
    access: Access,
    bucket: std::sync::Mutex<Bucket>,
}

/// One look and what followed from it.
#[derive(Debug)]
pub struct Round {
    pub plan: Plan,
    pub executed: Executed,
}

impl Fleet {
    /// Servers for `shards` × `members`, that know nothing of each other.
    pub async fn start(net: u8, shards: u16, members: u16, spec: serde_json::Value) -> Self {
        hung::wait_for_room();
        let mut servers = BTreeMap::new();
        for shard in 0..shards {
            for ordinal in 0..members {
                let pod = Pod::new(shard, ordinal);
                servers.insert(pod, Server::start(net, host(pod)).await);
            }
        }
        let ring = certs::Ring::of(certs::Authority::create("agents").unwrap());
        let ring = tokio::sync::watch::channel(Arc::new(ring)).1;
        let issuer = SystemIssuer::new(ring.clone());
        let gathered = gathered(&spec);
        let resolved = resolved(&gathered, &issuer);
        let pods = Pods::default();
        for pod in servers.keys() {
            pods.make(&name(*pod), &format!("uid of {pod}"));
        }
        let config = kube::Config::new(pods.serve().await.parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let guard = Guard::always();
        let kubernetes = Kubernetes::new(client, Arc::new(Caches::default()), guard, None);
        Self {
            servers,
            resolved,
            memory: Memory::default(),
            limits: Limits::default(),
            aged: Duration::ZERO,
            pods,
            gathered,
            agents: Agents::new(ring),
            kubernetes,
            access: Access::new(OPERATOR),
            bucket: std::sync::Mutex::default(),
        }
    }

    /// One more server, at a place that did not exist.
    pub async fn add(&mut self, net: u8, pod: Pod) {
        self.pods.make(&name(pod), &format!("uid of {pod}"));
        self.servers.insert(pod, Server::start(net, host(pod)).await);
    }

    /// A copy of one server's volume, which goes on, is given to another, whose process starts anew on it.
    pub async fn copy_volume(&mut self, from: Pod, to: Pod) {
        let [table, log] = self.servers[&from].volume();
        let server = self.servers.get_mut(&to).unwrap();
        server.kill().await;
        let [own_table, own_log] = server.volume();
        std::fs::copy(table, own_table).unwrap();
        std::fs::remove_dir_all(&own_log).unwrap();
        std::fs::create_dir(&own_log).unwrap();
        for file in std::fs::read_dir(log).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), own_log.join(file.file_name())).unwrap();
        }
        server.run().await;
    }

    pub fn places(&self) -> BTreeMap<Pod, Place> {
        let place = |(pod, server): (&Pod, &Server)| {
            let container = Container::Running { address: server.address };
            (
                *pod,
                Place {
                    name: name(*pod),
                    outdated: false,
                    other_image: false,
                    older_volume: false,
                    blank: false,
                    last_id: None,
                    site: plan::Site::Unknown,
                    ready: true,
                    terminating: false,
                    uid: self.pods.uid(&name(*pod)),
                    stuck: None,
                    crashes: None,
                    restarted_by: None,
                    container,
                },
            )
        };
        self.servers.iter().map(place).collect()
    }

    pub fn desired(&self, shards: u16, replicas: u16) -> Desired {
        Desired { node_timeout_millis: node_timeout_millis(), ..Desired::cluster(shards, replicas) }
    }

    pub async fn look(&mut self) -> Probed {
        let places = self.places();
        let question = Question {
            mode: types::cluster::Mode::Cluster,
            logs: true,
            parameters: &self.resolved.agent.parameters,
            places: &places,
            access: &self.access,
            agents: &self.agents,
            whose: "kun:agent:ns:orders",
        };
        probe(question, &mut self.memory).await
    }

    /// A look in which each of these has answered: one during which the machine stood still says nothing of them.
    ///
    /// # Panics
    /// If one does not answer for longer than anything takes.
    pub async fn look_at(&mut self, pods: &[Pod]) -> Probed {
        let begun = Instant::now();
        loop {
            let probed = self.look().await;
            let is_seen =
                |pod| matches!(probed.observed.members.get(pod).map(|member| &member.seen), Some(Seen::Node(_)));
            if pods.iter().all(is_seen) {
                return probed;
            }
            assert!(begun.elapsed() < hung::change(), "not all of {pods:?} answer: {:?}", probed.observed.members);
        }
    }

    /// A look in which every server has answered.
    pub async fn look_at_all(&mut self) -> Probed {
        let pods: Vec<Pod> = self.servers.keys().copied().collect();
        self.look_at(&pods).await
    }

    /// Looks, plans, executes.
    pub async fn round(&mut self, desired: &Desired) -> Round {
        let probed = self.look().await;
        let plan = plan::plan(desired, &probed.observed, &self.limits);
        let executed = self.execute(&plan, &probed).await;
        Round { plan, executed }
    }

    /// Carries out a plan that was made of this look.
    pub async fn execute(&mut self, plan: &Plan, probed: &Probed) -> Executed {
        let places = self.places();
        self.execute_at(&places, plan, probed).await
    }

    /// As [`Fleet::execute`], with the pods that were there when the look was made.
    pub async fn execute_at(&mut self, places: &BTreeMap<Pod, Place>, plan: &Plan, probed: &Probed) -> Executed {
        let (begun, aged) = (probed.begun.unwrap_or_else(Instant::now), self.aged);
        let clock = move || begun + aged;
        let world = World {
            resolved: &self.resolved,
            gathered: &self.gathered,
            places,
            probed,
            access: &self.access,
            agents: &self.agents,
            kubernetes: &self.kubernetes,
            bucket: &self.bucket,
            clock: &clock,
        };
        let executed = execute(plan, world, &mut self.memory).await;
        // It may be said again; a machine that stands still for longer than a connection takes is no reason.
        let begun = Instant::now();
        while let Err(error) = settle(plan, world).await {
            assert!(begun.elapsed() < hung::process(), "{error}");
        }
        executed
    }

    /// Carries out a plan that was made of this look, again where the wire failed, as the controller does in its next round: on a
    /// machine that stands still the product gives a node up. What was refused is not tried again.
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn carry_out(&mut self, plan: &Plan, probed: &Probed) -> Result<Done, String> {
        let places = self.places();
        self.carry_out_at(&places, plan, probed).await
    }

    /// As [`Fleet::carry_out`], with the pods that were there when the look was made.
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn carry_out_at(
        &mut self,
        places: &BTreeMap<Pod, Place>,
        plan: &Plan,
        probed: &Probed,
    ) -> Result<Done, String> {
        let begun = Instant::now();
        loop {
            let mut executed = self.execute_at(places, plan, probed).await;
            match executed.failed.first() {
                None => return Ok(executed.done.remove(0).1),
                Some((_, error)) if is_broken_off(error) => assert!(begun.elapsed() < hung::change(), "{error}"),
                Some((_, error)) => return Err(error.to_string()),
            }
        }
    }

    /// Carries out a plan that gives this member a role, until it has it: those who vote may stand still meanwhile. Whether the role was seen
    /// moving: who is only found to have it is told nothing of what goes with it.
    pub async fn promote(&mut self, plan: &Plan, probed: &Probed, heir: Pod) -> bool {
        let (begun, mut again) = (Instant::now(), false);
        loop {
            let executed = self.execute(plan, probed).await;
            let Some((_, error)) = executed.failed.first() else { return true };
            again |= is_broken_off(error) || matches!(error, Error::Late(_));
            if again && matches!(self.servers[&heir].operator().await.role().await, Ok(Role::Primary { .. })) {
                return false;
            }
            assert!(again && begun.elapsed() < hung::change(), "{error}");
        }
    }

    /// Rounds until the planner is satisfied.
    pub async fn until_satisfied(&mut self, desired: &Desired) {
        let begun = Instant::now();
        loop {
            let round = self.round(desired).await;
            if round.plan.is_satisfied() {
                return;
            }
            assert!(
                begun.elapsed() < hung::change(),
                "not satisfied: steps {:?}, waiting {:?}, refused {:?}, failed {:?}",
                round.plan.steps,
                round.plan.waiting,
                round.plan.refused,
                round.executed.failed
            );
            tokio::time::sleep(Duration::from_millis(if round.executed.done.is_empty() { 20 } else { 5 })).await;
        }
    }

    /// Rounds until the cluster is made, each shard led by its first member. Where that one stood still meanwhile, another one may lead.
    pub async fn until_made(&mut self, desired: &Desired) {
        self.until_satisfied(desired).await;
        let mut others = false;
        for pod in self.servers.keys().copied().filter(|pod| pod.ordinal == 0) {
            let leads = matches!(self.servers[&pod].operator().await.role().await, Ok(Role::Primary { .. }));
            others |= !leads;
            self.takes_over(pod).await;
        }
        if others {
            self.until_satisfied(desired).await;
        }
    }

    /// A replica is told to take over until it has. Redis forgets that after five seconds, and on a machine that stands still it comes to nothing.
    pub async fn takes_over(&self, pod: Pod) {
        let (begun, mut redis) = (Instant::now(), self.servers[&pod].operator().await);
        let mut ordered: Option<Instant> = None;
        while !matches!(redis.role().await, Ok(Role::Primary { .. })) {
            assert!(begun.elapsed() < hung::change(), "{pod} does not become a primary");
            if ordered.is_none_or(|ordered| ordered.elapsed() > ORDER) {
                // Refused if it is the primary by now.
                let _ = redis.call(&["CLUSTER", "FAILOVER"]).await;
                ordered = Some(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn client(&self) -> ClusterClient {
        let seeds = self.servers.values().map(|server| server.address).collect();
        let credentials = Credentials::new("default", APPLICATION);
        // Who waits less has writes without an answer where the machine stands still, and they say nothing of ours.
        ClusterClient::new(seeds, Some(credentials)).timeouts(hung::answer(), hung::change())
    }
}

/// Whether a connection was not made, or not answered, in the time that the product gives it.
#[must_use]
pub fn is_of_the_wire(error: &redis::Error) -> bool {
    use resp::Error::{Connect, Deadline, Io};
    matches!(error, redis::Error::Redis(Connect { .. } | Deadline { .. } | Io { .. }))
}

/// Whether a step failed for that.
#[must_use]
pub fn is_broken_off(error: &Error) -> bool {
    match error {
        Error::Node(node) | Error::Migrate(migrate::Error::Node(node)) => is_of_the_wire(node),
        Error::Refused(_)
        | Error::Late(_)
        | Error::NotLeading
        | Error::Migrate(_)
        | Error::Agent(_)
        | Error::Api(_) => false,
    }
}

fn name(pod: Pod) -> String {
    format!("orders-{pod}")
}

fn host(pod: Pod) -> u8 {
    u8::try_from(pod.shard * 10 + pod.ordinal + 1).unwrap()
}

fn gathered(spec: &serde_json::Value) -> Gathered {
    let cluster = json!({
        "apiVersion": "redis.kun.io/v1", "kind": "RedisCluster",
        "metadata": {"name": "orders", "namespace": "ns", "uid": "u1", "generation": 1},
        "spec": spec,
    });
    Gathered::alone(Arc::new(serde_json::from_value(cluster).unwrap()))
}

fn resolved(gathered: &Gathered, issuer: &dyn Issuer) -> Resolved {
    let context =
        resolve::Context { kun_image: "kun:1", namespace: "kun-system", issuer, now: jiff::Timestamp::UNIX_EPOCH };
    let resolved = resolve(gathered, context).unwrap();
    build(&resolved).unwrap();
    resolved
}
