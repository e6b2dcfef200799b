//! A Java process that ends with this one.
//!
//! A shell stands between: it holds the read end of a pipe whose write end only this process has, and kills
//! Java when that pipe closes. So no broker outlives its test, not even one that is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a process may take to say or do what it is waited for; generous, as CI machines are slow.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Starts Java, says its id, and kills it when the pipe at descriptor 3 closes.
const SCRIPT: &str = r#"
exec 3<&0
java "$@" </dev/null 3<&- 2>&1 &
java=$!
echo "pid $java"
( cat; kill -KILL $java ) <&3 >/dev/null 2>&1 &
exec 3<&-
wait $java
echo "ended with $?"
"#;

/// How much memory and how fast a start: a broker of a test is small.
const JAVA_OPTIONS: &[&str] = &[
    "-Xms128m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
];

/// A running Java; killed when dropped.
pub(crate) struct Java {
    shell: Child,
    /// The life line: dropped, the shell kills Java.
    life_line: Option<ChildStdin>,
    id: u32,
    lines: mpsc::Receiver<String>,
    output: Vec<String>,
}

impl Java {
    /// Runs a main class with the jars of a folder.
    pub(crate) fn spawn(jars: &Path, log_config: &Path, arguments: &[&str]) -> Java {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "java"]).args(JAVA_OPTIONS);
        command.arg(format!("-Dlog4j2.configurationFile=file:{}", log_config.display()));
        command.arg("-cp").arg(jars.join("*")).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("a shell runs");
        let lines = forward(shell.stdout.take().expect("stdout is piped"));
        let life_line = shell.stdin.take();
        let mut java = Java { shell, life_line, id: 0, lines, output: Vec::new() };
        let id = java.wait_line("pid ").and_then(|line| line.strip_prefix("pid ")?.parse().ok());
        java.id = id.expect("the shell says Java's id");
        java
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> String {
        self.output.join("\n")
    }

    /// Waits for a line with a text; `None` if it ends before.
    pub(crate) fn wait_line(&mut self, text: &str) -> Option<String> {
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => {
                    self.output.push(line.clone());
                    if line.contains(text) {
                        return Some(line);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("java did not say \"{text}\" in time: {}", self.output())
                }
            }
        }
    }

    /// Waits until it has ended, and returns its exit code.
    pub(crate) fn wait_end(&mut self) -> i32 {
        let line = self.wait_line("ended with ");
        let code = line.as_deref().and_then(|line| line.strip_prefix("ended with ")?.parse().ok());
        code.unwrap_or_else(|| panic!("the shell says how java ended: {}", self.output()))
    }

    /// Sends a signal by the name that `kill` knows it by.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.id.to_string()]).status().expect("kill runs");
        assert!(status.success(), "java {} is there", self.id);
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        drop(self.life_line.take());
        self.shell.wait().expect("a child can be waited for");
    }
}

#[allow(clippy::disallowed_methods, reason = "a pipe of a child is read by a thread that ends with it")]
fn forward(pipe: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::sync_channel(100_000);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            match sender.try_send(line) {
                Ok(()) => {}
                // Nobody reads; the broker must not block on its output.
                Err(mpsc::TrySendError::Full(_)) => {}
                Err(mpsc::TrySendError::Disconnected(_)) => break,
            }
        }
    });
    lines
}
