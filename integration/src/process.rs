//! The binary as child processes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a server may take to say that it is listening; generous, as CI machines are slow.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an ended process may take to go.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The built `tidemill` binary.
pub struct Binary {
    path: PathBuf,
}

impl Binary {
    /// Finds the binary beside the test's own (`make test` builds it first).
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn find() -> Binary {
        let test = std::env::current_exe().expect("a test knows its path");
        let folder = test.ancestors().nth(2).expect("a test lies in target/<profile>/deps");
        let path = folder.join("tidemill");
        assert!(path.exists(), "{} is missing: run `make build` first", path.display());
        Binary { path }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs it.
    #[must_use]
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }
}

/// How to start a process.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Environment, for example FAILPOINTS.
    pub environment: BTreeMap<String, String>,
}

/// A running process; killed when dropped.
pub struct Server {
    child: Child,
    addresses: BTreeMap<String, SocketAddr>,
    lines: mpsc::Receiver<String>,
}

impl Server {
    /// Starts `tidemill server` on a data directory and waits until it is listening.
    ///
    /// # Panics
    /// If it does not start; its output says why.
    #[must_use]
    pub fn start(data_dir: &Path, options: &ServerOptions) -> Server {
        let data_dir = data_dir.to_str().expect("a path in UTF-8");
        let mut arguments = vec!["server", "--data-dir", data_dir, "--listen", "127.0.0.1:0"];
        arguments.extend(options.arguments.iter().map(String::as_str));
        Server::run(&arguments, &options.environment, "tidemill is listening on ")
    }

    /// Starts any subcommand and waits for a line with a prefix, whose rest is an address.
    ///
    /// # Panics
    /// If it ends or the time is over before it says so.
    #[must_use]
    pub fn run(arguments: &[&str], environment: &BTreeMap<String, String>, ready: &str) -> Server {
        match Server::try_run(arguments, environment, ready) {
            Ok(server) => server,
            Err(output) => panic!("tidemill {} did not get ready: {output}", arguments.join(" ")),
        }
    }

    /// As [`Server::run`], for processes that may end before they are ready.
    ///
    /// # Errors
    /// What it printed, if it ended or was too slow.
    ///
    /// # Panics
    /// If the binary cannot be run at all.
    pub fn try_run(
        arguments: &[&str],
        environment: &BTreeMap<String, String>,
        ready: &str,
    ) -> Result<Server, String> {
        let mut command = Binary::find().command();
        command
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let (sender, lines) = mpsc::sync_channel(100_000);
        forward(child.stdout.take().expect("stdout is piped"), sender.clone());
        forward(child.stderr.take().expect("stderr is piped"), sender);
        let mut server = Server { child, addresses: BTreeMap::new(), lines };
        let mut output = String::new();
        loop {
            match server.lines.recv_timeout(START_TIMEOUT) {
                Ok(line) => {
                    server.note_address(&line);
                    if line.contains(ready) {
                        return Ok(server);
                    }
                    output.push_str(&line);
                    output.push('\n');
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(output),
                Err(mpsc::RecvTimeoutError::Timeout) => return Err(format!("{output}(timed out)")),
            }
        }
    }

    /// Remembers `<name> is listening on <address>`.
    fn note_address(&mut self, line: &str) {
        let Some((before, after)) = line.split_once(" is listening on ") else { return };
        let name = before.rsplit(' ').next().unwrap_or(before);
        if let Ok(address) = after.trim().parse() {
            self.addresses.insert(name.to_owned(), address);
        }
    }

    /// The address it said it listens on, by the name it used (`tidemill`, `store`, `coordinator`).
    ///
    /// # Panics
    /// If it did not say so.
    #[must_use]
    pub fn address_of(&self, name: &str) -> SocketAddr {
        *self.addresses.get(name).unwrap_or_else(|| panic!("no address of {name} among {:?}", self.addresses))
    }

    /// The MySQL address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address_of("tidemill")
    }

    /// Kills it with SIGKILL and waits until it is gone.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn kill(mut self) {
        self.kill_now();
    }

    fn kill_now(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().expect("a child can be killed");
        }
        self.child.wait().expect("a child can be waited for");
    }

    /// Asks it to end with SIGTERM and waits.
    ///
    /// # Panics
    /// If it does not end in time.
    #[must_use]
    pub fn terminate(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        assert!(status.success(), "the process {id} is there");
        self.wait_exit()
    }

    /// Waits until it ends by itself (a fail point).
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn wait_exit(&mut self) -> ExitStatus {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return status;
            }
            assert!(waited < EXIT_TIMEOUT, "the process does not end");
            pause(Duration::from_millis(20));
            waited += Duration::from_millis(20);
        }
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// If it cannot be asked.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be asked").is_none()
    }

    /// What it printed since the last call.
    pub fn output(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill_now();
    }
}

/// Polls another process, which has no event to wait on.
#[allow(clippy::disallowed_methods, reason = "waits on a condition of another process, with a limit")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

#[allow(clippy::disallowed_methods, reason = "a pipe of a child is read by a thread that ends with it")]
fn forward(pipe: impl std::io::Read + Send + 'static, sender: mpsc::SyncSender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.try_send(line).is_err() {
                // The test does not read; the process must not block on its output.
                continue;
            }
        }
    });
}
