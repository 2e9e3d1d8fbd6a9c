//! A real Kubernetes with nodes, as `tests/cluster` makes one: in namespaces of its own, with no way out. Nothing of it outlives
//! the value, nor the process that holds it.
//!
//! It must not know what is tested on it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{cluster, kubectl::Kubectl, standalone::kun_binary};

/// What pods call the image of [`Kubernetes::load_kun`].
pub const KUN_IMAGE: &str = "kun.test/kun:test";

/// A cluster.
#[derive(Debug)]
pub struct Kubernetes {
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
    own: Option<Own>,
}

/// One that we have started.
#[derive(Debug)]
struct Own {
    /// Which of those on this machine.
    number: String,
    state: PathBuf,
    /// The programs it is made of.
    tools: PathBuf,
    keeper: Child,
    /// The cluster ends when nobody holds this open any more, however that comes.
    lease: Option<ChildStdin>,
}

/// What happens to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It is switched on, or added.
    Up,
    /// Its power fails.
    Kill,
    /// It hangs.
    Freeze,
    /// It goes on.
    Thaw,
    /// Its cable is pulled.
    Cut,
    /// Its cable is back.
    Join,
}

impl Power {
    const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Cut => "cut",
            Self::Join => "join",
        }
    }
}

/// What happens to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// It is killed, and started again at once.
    Kill,
    /// It is killed, and not started before it is released.
    Hold,
    /// It may be started again.
    Release,
    /// It neither works nor ends.
    Pause,
    /// It goes on.
    Continue,
}

impl Blow {
    const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Pause => "pause",
            Self::Continue => "continue",
        }
    }
}

/// The kubeconfig of a cluster that the user gives to the tests: KUBECONFIG's, where KUN_TEST_CLUSTER=1 says so. KUBECONFIG alone is set for
/// kubectl, perhaps on the cluster that the user works with.
pub fn given() -> Result<Option<PathBuf>> {
    if std::env::var_os("KUN_TEST_CLUSTER").is_none_or(|value| value != "1") {
        return Ok(None);
    }
    let kubeconfig = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let kubeconfig = kubeconfig.context("KUN_TEST_CLUSTER=1 means the cluster of KUBECONFIG, which names none")?;
    Ok(Some(kubeconfig.into()))
}

impl Kubernetes {
    /// A cluster for this test alone, which may break it. `None`: this machine cannot have one, and the test is skipped with a
    /// line that says so.
    pub fn start(nodes: u8, test: &str) -> Result<Option<Self>> {
        if cluster::built("prepare.sh", test)?.is_none() {
            return Ok(None);
        }
        let (own, kubeconfig) = Own::start(nodes)?;
        Ok(Some(Self { kubeconfig, home: home()?, own: Some(own) }))
    }

    /// The cluster that the user gives ([`given`]), or else one of our own: for tests that break nothing but what they made.
    #[expect(clippy::print_stdout, reason = "whose cluster was used is to be seen")]
    pub fn given_or_start(nodes: u8, test: &str) -> Result<Option<Self>> {
        let Some(kubeconfig) = given()? else {
            return Self::start(nodes, test);
        };
        println!("{test}: on the cluster of KUBECONFIG={}", kubeconfig.display());
        Ok(Some(Self { kubeconfig, home: home()?, own: None }))
    }

    /// Whether it is one of our own, which a test may break.
    #[must_use]
    pub const fn is_ours(&self) -> bool {
        self.own.is_some()
    }

    /// kubectl of its administrator: of the cluster's own version, if it is ours.
    #[must_use]
    pub fn admin(&self) -> Kubectl {
        let kubectl = Kubectl::new(&self.kubeconfig, self.home.path());
        match &self.own {
            Some(own) => kubectl.program(own.tools.join("kubectl")),
            None => kubectl,
        }
    }

    /// The kubeconfig of its administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A folder for files of the test, which goes with the value.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.home.path()
    }

    /// The folder of its programs, if it is ours.
    #[must_use]
    pub fn tools(&self) -> Option<&Path> {
        self.own.as_ref().map(|own| own.tools.as_path())
    }

    /// Its number among those of this machine, if it is ours: its links and control groups have it in their names.
    #[must_use]
    pub fn number(&self) -> Option<&str> {
        self.own.as_ref().map(|own| own.number.as_str())
    }

    /// The folder with its logs, keys and volumes, if it is ours.
    #[must_use]
    pub fn state(&self) -> Option<&Path> {
        self.own.as_ref().map(|own| own.state.as_path())
    }

    /// Does to a node what happens to machines.
    pub fn node(&self, power: Power, number: u8) -> Result<()> {
        self.own()?.script("node.sh", &[power.word(), &number.to_string()])
    }

    /// Does to a program what happens to programs; `part.sh` says how they are called.
    pub fn part(&self, blow: Blow, name: &str) -> Result<()> {
        self.own()?.script("part.sh", &[blow.word(), name])
    }

    /// Gives an image to every node that is on.
    pub fn load(&self, image: &Path) -> Result<()> {
        let image = image.to_str().context("path of the image")?;
        self.own()?.script("load.sh", &[image])
    }

    /// Gives our own image to every node that is on, as [`KUN_IMAGE`].
    pub fn load_kun(&self) -> Result<()> {
        let output = script("kun-image.sh").arg(kun_binary()?).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "kun-image.sh: {}", String::from_utf8_lossy(&output.stderr));
        self.load(Path::new(String::from_utf8_lossy(&output.stdout).trim()))
    }

    /// The end of a program's log; `part.sh` says how they are called.
    #[must_use]
    pub fn log_tail(&self, part: &str) -> String {
        self.state()
            .map(|state| cluster::log_tail(&state.join("parts").join(format!("{part}.log"))))
            .unwrap_or_default()
    }

    /// Ends it if it is ours, and waits until nothing of it is left.
    pub fn stop(mut self) -> Result<()> {
        match &mut self.own {
            Some(own) => own.end(),
            None => Ok(()),
        }
    }

    fn own(&self) -> Result<&Own> {
        self.own.as_ref().context("the cluster is not ours to break")
    }
}

/// Where kubectl keeps what it remembers.
fn home() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("kun-kubectl-").tempdir()?)
}

impl Own {
    /// Starts the first cluster that nobody runs, and returns it with its kubeconfig.
    fn start(nodes: u8) -> Result<(Self, PathBuf)> {
        let told = tempfile::NamedTempFile::new()?;
        let mut keeper = script("keep.sh")
            .arg(nodes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(told.reopen()?)
            .spawn()
            .context("start keep.sh")?;
        let lease = keeper.stdin.take();
        let output = keeper.stdout.take().context("output of keep.sh")?;
        let lines = until_ready(output)?;
        let mut own = Self { number: String::new(), state: PathBuf::new(), tools: PathBuf::new(), keeper, lease };
        if lines.last().map(String::as_str) != Some("ready") {
            own.end().ok();
            bail!("no cluster:\n{}", fs::read_to_string(told.path())?);
        }
        let said = |name: &str| -> Result<&str> {
            let found = lines.iter().find_map(|line| line.strip_prefix(&format!("export {name}=")));
            found.with_context(|| format!("keep.sh did not say {name}"))
        };
        own.number = said("CLUSTER")?.to_owned();
        let kubeconfig = PathBuf::from(said("KUBECONFIG")?);
        own.state = kubeconfig.ancestors().nth(2).context("folder of the kubeconfig")?.to_owned();
        own.tools = PathBuf::from(fs::read_to_string(own.state.join("tools"))?.trim());
        Ok((own, kubeconfig))
    }

    fn script(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let output = script(name).args(arguments).env("CLUSTER", &self.number).stdin(Stdio::null()).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name} {}: {told}", arguments.join(" "));
        Ok(())
    }

    /// Lets go of the lease, and waits until the keeper has removed everything.
    fn end(&mut self) -> Result<()> {
        drop(self.lease.take());
        let begin = Instant::now();
        while self.keeper.try_wait()?.is_none() {
            ensure!(begin.elapsed() < hung::machine(), "the cluster does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.end().ok();
    }
}

/// A script of `tests/cluster`, in a process group of its own: what a terminal interrupts is the test, and the keeper tidies up.
fn script(name: &str) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster").join(name));
    command.process_group(0);
    command
}

/// What the keeper prints, up to "ready", or up to its end.
fn until_ready(output: impl std::io::Read) -> Result<Vec<String>> {
    use std::io::BufRead as _;
    let mut lines = Vec::new();
    for line in std::io::BufReader::new(output).lines() {
        lines.push(line.context("read what keep.sh prints")?);
        if lines.last().is_some_and(|line| line == "ready") {
            break;
        }
    }
    Ok(lines)
}
