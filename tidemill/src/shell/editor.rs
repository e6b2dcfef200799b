//! The interactive part: a prompt with history, and statements of several lines.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor, Helper};

use super::backend::Backend;
use super::split::split;
use super::{Format, Outcome, run_steps};

/// Lets Enter begin a new line until the statement ends with a semicolon.
struct UntilSemicolon;

impl Completer for UntilSemicolon {
    type Candidate = String;
}

impl Hinter for UntilSemicolon {
    type Hint = String;
}

impl Highlighter for UntilSemicolon {}

impl Helper for UntilSemicolon {}

impl Validator for UntilSemicolon {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let split = split(context.input());
        let complete = split.rest.is_empty() && !split.is_open;
        Ok(if complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

fn history_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("TIDEMILL_HISTORY") {
        return Some(PathBuf::from(path));
    }
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".tidemill_history"))
}

/// Reads statements and runs them until the user leaves.
pub(super) async fn interact(backend: &mut Backend, format: Format) -> Result<()> {
    let mut editor: Editor<UntilSemicolon, DefaultHistory> = Editor::new()?;
    editor.set_helper(Some(UntilSemicolon));
    let history = history_path();
    if let Some(path) = history.as_ref().filter(|path| path.exists())
        && let Err(error) = editor.load_history(path)
    {
        tracing::warn!(path = %path.display(), %error, "the history cannot be read");
    }
    writeln!(std::io::stdout(), "{}; `help` for help, `quit` to leave.", crate::VERSION)?;
    loop {
        let line = match editor.readline("tidemill> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        if line.trim().is_empty() {
            continue;
        }
        editor.add_history_entry(line.trim_end())?;
        if run_steps(backend, &split(&line).steps, format).await? == Outcome::Left {
            break;
        }
    }
    if let Some(path) = history
        && let Err(error) = editor.save_history(&path)
    {
        tracing::warn!(path = %path.display(), %error, "the history cannot be written");
    }
    Ok(())
}
