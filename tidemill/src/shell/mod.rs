//! `tidemill sql`: a shell over a server or a data directory, for people and for scripts.
//!
//! Statements are split here and sent one by one, so that each has its result and its time. Errors look
//! like MySQL's; in a script the first one ends it, with an exit code that says so.

mod backend;
mod editor;
mod split;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::time::Instant;

use crate::answer::table;
pub use backend::Target;
use backend::{Backend, Failure, Reply};
use split::{Command, Step, split};

const HELP: &str = "\
Statements end with a semicolon and may take several lines.
  SHOW TABLES;  SHOW MATERIALIZED VIEWS;  DESCRIBE t;  EXPLAIN SELECT ...;
  CREATE MATERIALIZED VIEW v AS SELECT ...;  REFRESH MATERIALIZED VIEW v;  VERIFY MATERIALIZED VIEW v;
  SET tidemill_read_mode = 'fresh' | 'stale' | 'wait' | 'live';
  SELECT * FROM tidemill.views;   (also tidemill.jobs, .epochs, .operators, .refreshes)
quit, exit, \\q or Ctrl-D leaves; Ctrl-C drops the line.
";

/// What to run.
#[derive(Clone, Debug)]
pub enum Script {
    /// Statements of the command line.
    Text(String),
    /// Statements of a file.
    File(PathBuf),
    /// Whoever sits there, or what comes through the pipe.
    Standard,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tables with row counts and times.
    #[default]
    Table,
    /// Tab-separated values under a line of names, and nothing else.
    Tsv,
}

/// Runs the shell; false if a statement of a script failed.
///
/// # Errors
/// If the target cannot be reached or opened, or the script cannot be read.
pub async fn run(target: Target, script: Script, format: Format) -> Result<bool> {
    let text = match script {
        Script::Text(text) => Some(text),
        Script::File(path) => Some(read_file(&path)?),
        Script::Standard if std::io::stdin().is_terminal() => None,
        Script::Standard => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
            Some(text)
        }
    };
    let mut backend = Backend::open(target).await?;
    let outcome = match text {
        Some(text) => run_script(&mut backend, &text, format).await,
        None => editor::interact(&mut backend, format).await.map(|()| true),
    };
    backend.close().await?;
    outcome
}

fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

async fn run_script(backend: &mut Backend, text: &str, format: Format) -> Result<bool> {
    let split = split(text);
    let rest = Some(split.rest).filter(|rest| !rest.is_empty()).map(Step::Statement);
    let steps: Vec<Step> = split.steps.into_iter().chain(rest).collect();
    Ok(run_steps(backend, &steps, format).await? != Outcome::Failed)
}

/// How steps ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// A statement failed; those after it were not run.
    Failed,
    /// The user leaves.
    Left,
}

/// Takes steps in order, up to the first statement that fails or the command to leave.
async fn run_steps(backend: &mut Backend, steps: &[Step], format: Format) -> Result<Outcome> {
    for step in steps {
        match step {
            Step::Command(Command::Quit) => return Ok(Outcome::Left),
            Step::Command(Command::Help) => std::io::stdout().write_all(HELP.as_bytes())?,
            Step::Statement(statement) => {
                if !run_statement(backend, statement, format).await? {
                    return Ok(Outcome::Failed);
                }
            }
        }
    }
    Ok(Outcome::Done)
}

/// Runs a statement and prints what it answers; false if that is an error.
async fn run_statement(backend: &mut Backend, statement: &str, format: Format) -> Result<bool> {
    let began = Instant::now();
    let replies = backend.run(statement).await;
    let seconds = began.elapsed().as_secs_f64();
    let mut out = std::io::stdout().lock();
    match replies {
        Ok(replies) => {
            for reply in &replies {
                out.write_all(shown(reply, format, seconds).as_bytes())?;
            }
            out.flush()?;
            Ok(true)
        }
        Err(Failure { code, state, message }) => {
            out.flush()?;
            writeln!(std::io::stderr(), "ERROR {code} ({state}): {message}")?;
            Ok(false)
        }
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn shown(reply: &Reply, format: Format, seconds: f64) -> String {
    match (reply, format) {
        (Reply::Done { .. }, Format::Tsv) => String::new(),
        (Reply::Done { affected_rows, info }, Format::Table) => {
            let info = if info.is_empty() { String::new() } else { format!("\n{info}") };
            format!("Query OK, {} affected ({seconds:.2} s){info}\n", counted(*affected_rows, "row"))
        }
        (Reply::Rows { names, rows }, Format::Tsv) => {
            let mut lines = vec![names.iter().map(|name| tsv(name)).collect::<Vec<_>>().join("\t")];
            lines.extend(rows.iter().map(|row| {
                row.iter()
                    .map(|value| value.as_deref().map_or("NULL".to_owned(), tsv))
                    .collect::<Vec<_>>()
                    .join("\t")
            }));
            lines.join("\n") + "\n"
        }
        (Reply::Rows { rows, .. }, Format::Table) if rows.is_empty() => {
            format!("Empty set ({seconds:.2} s)\n")
        }
        (Reply::Rows { names, rows }, Format::Table) => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let texts: Vec<Vec<String>> = rows
                .iter()
                .map(|row| {
                    row.iter().map(|value| value.clone().unwrap_or_else(|| "NULL".to_owned())).collect()
                })
                .collect();
            let count = counted(rows.len() as u64, "row");
            format!("{}\n{count} in set ({seconds:.2} s)\n", table(&names, &texts))
        }
    }
}

/// A value in one line, as the MySQL shell escapes it.
fn tsv(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\0', "\\0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[Option<&str>]]) -> Reply {
        let row = |row: &&[Option<&str>]| row.iter().map(|value| value.map(str::to_owned)).collect();
        Reply::Rows { names: vec!["a".to_owned(), "b".to_owned()], rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn results_are_tables_with_counts() {
        let text = shown(&rows(&[&[Some("1"), None]]), Format::Table, 0.0);
        assert!(text.contains("| a | b    |") && text.contains("| 1 | NULL |"), "{text}");
        assert!(text.ends_with("1 row in set (0.00 s)\n"), "{text}");
        assert_eq!(shown(&rows(&[]), Format::Table, 0.0), "Empty set (0.00 s)\n");
        let done = Reply::Done { affected_rows: 2, info: String::new() };
        assert_eq!(shown(&done, Format::Table, 0.0), "Query OK, 2 rows affected (0.00 s)\n");
    }

    #[test]
    fn tab_separated_values_stay_in_their_line() {
        let text = shown(&rows(&[&[Some("x\ty\nz\\"), None]]), Format::Tsv, 0.0);
        assert_eq!(text, "a\tb\nx\\ty\\nz\\\\\tNULL\n");
    }
}
