//! The binary as child processes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a process may take to say or do what it is waited for; generous, as CI machines are slow.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How often it is looked at.
const POLL: Duration = Duration::from_millis(10);

/// A built binary.
pub struct Binary {
    path: PathBuf,
}

impl Binary {
    /// Finds `tidemill`.
    ///
    /// # Panics
    /// As [`Binary::named`].
    #[must_use]
    pub fn find() -> Binary {
        Binary::named("tidemill")
    }

    /// Finds a binary beside the test's own (`make test` builds it first).
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn named(name: &str) -> Binary {
        let test = std::env::current_exe().expect("a test knows its path");
        let folder = test.ancestors().nth(2).expect("a test lies in target/<profile>/deps");
        let path = folder.join(name);
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

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Death {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it printed.
    pub output: Vec<String>,
}

impl Death {
    /// Whether it was ended by a fail point that kills it (`return(kill)`), and by nothing else.
    #[must_use]
    pub fn is_by_fail_point(&self, name: &str) -> bool {
        let said = format!("fail point {name}: the process is killed");
        self.status.signal() == Some(SIGKILL) && self.output.contains(&said)
    }
}

/// The number of the signal that cannot be caught.
const SIGKILL: i32 = 9;

/// A running process; killed when dropped.
pub struct Server {
    child: Child,
    addresses: BTreeMap<String, SocketAddr>,
    lines: mpsc::Receiver<String>,
    output: Vec<String>,
    /// Lines of the output up to the one that was last waited for.
    heard: usize,
}

impl Server {
    /// Starts `tidemill server` on a data directory and waits until it is listening.
    ///
    /// # Panics
    /// If it does not start; its output says why.
    #[must_use]
    pub fn start(data_dir: &Path, options: &ServerOptions) -> Server {
        let mut server = Server::begin(data_dir, options);
        if !server.get_ready() {
            panic!("the server did not get ready: {:?}", server.end());
        }
        server
    }

    /// Starts `tidemill server` on a data directory and waits for nothing.
    ///
    /// # Panics
    /// If the binary cannot be run at all.
    #[must_use]
    pub fn begin(data_dir: &Path, options: &ServerOptions) -> Server {
        let data_dir = data_dir.to_str().expect("a path in UTF-8");
        let mut arguments = vec!["server", "--data-dir", data_dir, "--listen", "127.0.0.1:0"];
        arguments.extend(options.arguments.iter().map(String::as_str));
        Server::spawn(&arguments, &options.environment)
    }

    /// Waits until a server that was begun is listening; `false` if it has ended before.
    ///
    /// # Panics
    /// If it is too slow.
    pub fn get_ready(&mut self) -> bool {
        self.wait_line("tidemill is listening on ").is_some()
    }

    /// Starts any subcommand and waits for a line with a prefix, whose rest is an address.
    ///
    /// # Panics
    /// If it ends or the time is over before it says so.
    #[must_use]
    pub fn run(arguments: &[&str], environment: &BTreeMap<String, String>, ready: &str) -> Server {
        let mut server = Server::spawn(arguments, environment);
        if server.wait_line(ready).is_none() {
            panic!("tidemill {} did not get ready: {:?}", arguments.join(" "), server.end());
        }
        server
    }

    /// Starts any subcommand and waits for nothing.
    ///
    /// # Panics
    /// If the binary cannot be run at all.
    #[must_use]
    pub fn spawn(arguments: &[&str], environment: &BTreeMap<String, String>) -> Server {
        Server::spawn_binary(&Binary::find(), arguments, environment)
    }

    /// Starts any binary and waits for nothing.
    ///
    /// # Panics
    /// If it cannot be run at all.
    #[must_use]
    pub fn spawn_binary(
        binary: &Binary,
        arguments: &[&str],
        environment: &BTreeMap<String, String>,
    ) -> Server {
        let mut command = binary.command();
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
        Server { child, addresses: BTreeMap::new(), lines, output: Vec::new(), heard: 0 }
    }

    /// Waits until it prints a line with a text, and returns the line; `None` if it ends before.
    ///
    /// # Panics
    /// If it is too slow.
    pub fn wait_line(&mut self, text: &str) -> Option<String> {
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => {
                    self.note(line.clone());
                    if line.contains(text) {
                        return Some(line);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("the process did not say \"{text}\" in time: {}", self.output.join("\n"))
                }
            }
        }
    }

    /// Remembers what it printed, and `<name> is listening on <address>`.
    fn note(&mut self, line: String) {
        if let Some((before, after)) = line.split_once(" is listening on ") {
            let name = before.rsplit(' ').next().unwrap_or(before);
            if let Ok(address) = after.trim().parse() {
                self.addresses.insert(name.to_owned(), address);
            }
        }
        self.output.push(line);
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
    /// If it had ended by itself before, or ends in another way.
    pub fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        let death = self.end();
        assert_eq!(death.status.signal(), Some(SIGKILL), "{death:?}");
    }

    /// Asks it to end with SIGTERM and waits.
    ///
    /// # Panics
    /// If it does not end in time.
    #[must_use]
    pub fn terminate(mut self) -> ExitStatus {
        self.signal("-TERM");
        self.end().status
    }

    /// Sends it a signal by the name that `kill` knows it by.
    ///
    /// # Panics
    /// If it is not there any more.
    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status().expect("kill runs");
        assert!(status.success(), "the process {id} is there");
    }

    /// Waits until it ends by itself (a fail point), while others go on.
    ///
    /// # Panics
    /// If it does not end in time.
    pub async fn wait_exit(&mut self) -> Death {
        let mut waited = Duration::ZERO;
        while self.is_running() {
            self.assert_in_time(waited);
            tokio::time::sleep(POLL).await;
            waited += POLL;
        }
        self.end()
    }

    /// As [`Server::wait_exit`], while nobody else goes on.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn end(&mut self) -> Death {
        let mut waited = Duration::ZERO;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                break status;
            }
            self.assert_in_time(waited);
            pause(POLL);
            waited += POLL;
        };
        // Its pipes end with it; what they still hold is read to the end.
        while let Ok(line) = self.lines.recv_timeout(TIMEOUT) {
            self.note(line);
        }
        Death { status, output: std::mem::take(&mut self.output) }
    }

    fn assert_in_time(&mut self, waited: Duration) {
        assert!(waited < TIMEOUT, "the process goes on and on: {}", self.output().join("\n"));
    }

    /// Waits until it has printed a line with one of the texts, after the one that was last waited for here,
    /// while others go on.
    ///
    /// # Panics
    /// If it is too slow, or ends before.
    pub async fn said(&mut self, texts: &[&str]) {
        let mut waited = Duration::ZERO;
        loop {
            let heard = self.heard;
            let says = |line: &String| texts.iter().any(|text| line.contains(text));
            if let Some(at) = self.output()[heard..].iter().position(says) {
                self.heard += at + 1;
                return;
            }
            let output = || self.output.join("\n");
            assert!(waited < TIMEOUT, "the process said none of {texts:?} in time: {}", output());
            tokio::time::sleep(POLL).await;
            waited += POLL;
        }
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// If it cannot be asked.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be asked").is_none()
    }

    /// What it has printed.
    pub fn output(&mut self) -> &[String] {
        while let Ok(line) = self.lines.try_recv() {
            self.note(line);
        }
        &self.output
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().expect("a child can be killed");
        }
        self.child.wait().expect("a child can be waited for");
    }
}

/// Waits until something becomes true that another process does, which has no event to wait on.
///
/// # Panics
/// If it takes too long.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut waited = Duration::ZERO;
    while !holds().await {
        assert!(waited < TIMEOUT, "{what}: not in time");
        tokio::time::sleep(POLL).await;
        waited += POLL;
    }
}

/// Polls another process, which has no event to wait on.
#[allow(clippy::disallowed_methods, reason = "waits on a condition of another process, with a limit")]
fn pause(duration: Duration) {
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
