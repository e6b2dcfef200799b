//! Fail points: named steps at which a test ends, stops or fails a process.
//!
//! Without the feature `failpoints` they are nothing. With it they are points of the `fail` crate, set by
//! the variable `FAILPOINTS` of a process: `store::before_sync=3*off->return(kill)` kills the process with
//! SIGKILL when it comes by for the fourth time. What `return` may be given is listed at [`pass`]; the crate's
//! own actions (`sleep`, `panic`, `off`) work too. Each crate lists its points; a process that is started
//! with a name that nobody lists refuses to start, so that a test never waits for what cannot happen.

use std::env::VarError;

use types::{Error, Result};

/// The store's own points, in the order of a group commit.
pub const POINTS: &[&str] = &["store::before_sync", "store::after_sync", "store::before_acknowledge"];

/// Reads the variable `FAILPOINTS`; call it once, first thing in `main`, with the names of every crate.
///
/// # Errors
/// `Invalid` for a name that is not among `known`, an action that cannot be read, or a build without the
/// feature.
pub fn setup_from_environment(known: &[&str]) -> Result<()> {
    match std::env::var("FAILPOINTS") {
        Ok(text) => setup(&text, known),
        Err(VarError::NotPresent) => Ok(()),
        Err(error) => Err(Error::invalid(format!("variable FAILPOINTS: {error}"))),
    }
}

fn setup(text: &str, known: &[&str]) -> Result<()> {
    for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((name, actions)) = entry.split_once('=') else {
            return Err(Error::invalid(format!("fail point {entry} has no action: write name=action")));
        };
        if !known.contains(&name) {
            let known = known.join(", ");
            return Err(Error::invalid(format!("fail point {name} is unknown; known are {known}")));
        }
        arm(name, actions).map_err(|error| Error::invalid(format!("fail point {entry}: {error}")))?;
    }
    Ok(())
}

#[cfg(feature = "failpoints")]
fn arm(name: &str, actions: &str) -> std::result::Result<(), String> {
    fail::cfg(name, actions)
}

#[cfg(not(feature = "failpoints"))]
fn arm(_name: &str, _actions: &str) -> std::result::Result<(), String> {
    Err("this build has no fail points".to_owned())
}

/// Passes a fail point; nothing happens without the feature.
///
/// What it may be told: `return(abort)` ends the process at this very instruction; `return(kill)` has it
/// killed with SIGKILL while it stays here; `return(stop)` has it stopped with SIGSTOP, and goes on when it
/// is continued; any other `return` fails the step. The first three are said on standard error.
///
/// # Errors
/// `Unavailable` if the point was told to fail.
pub fn pass(name: &str) -> Result<()> {
    #[cfg(feature = "failpoints")]
    fail::fail_point!(name, |argument: Option<String>| obey(name, argument.as_deref()));
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
    Ok(())
}

#[cfg(feature = "failpoints")]
fn obey(name: &str, argument: Option<&str>) -> Result<()> {
    match argument {
        Some("abort") => {
            say(name, "the process aborts");
            std::process::abort()
        }
        Some("kill") => {
            say(name, "the process is killed");
            signal_self("-KILL");
            unreachable!("nobody survives SIGKILL")
        }
        Some("stop") => {
            say(name, "the process is stopped");
            signal_self("-STOP");
            say(name, "the process goes on");
            Ok(())
        }
        _ => Err(Error::unavailable(format!("fail point {name}"))),
    }
}

/// Whoever watches the process learns that it came here, and not somewhere else, to its end.
#[cfg(feature = "failpoints")]
fn say(name: &str, what: &str) {
    eprintln!("fail point {name}: {what}");
}

/// Waits for the signal's sender, so that this thread does not get past its step.
#[cfg(feature = "failpoints")]
fn signal_self(signal: &str) {
    let id = std::process::id().to_string();
    let status = std::process::Command::new("kill").args([signal, &id]).status();
    assert!(status.is_ok_and(|status| status.success()), "the program kill sends {signal}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        setup(text, &["a::b", "c::d"]).unwrap_err().message().to_owned()
    }

    #[test]
    fn fail_points_that_are_unknown_or_without_an_action_are_refused() {
        assert!(refusal("a::c=return").contains("fail point a::c is unknown; known are a::b, c::d"));
        assert!(refusal("c::d=off;a::c=return").contains("unknown") || cfg!(not(feature = "failpoints")));
        assert!(refusal("a::b").contains("has no action"));
        assert!(setup(" ; ", &[]).is_ok());
        let text = if cfg!(feature = "failpoints") { "a::b=nonsense" } else { "a::b=off" };
        assert!(refusal(text).starts_with(&format!("fail point {text}: ")));
    }
}
