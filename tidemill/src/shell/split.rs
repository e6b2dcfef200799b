//! Splits text into statements at semicolons that are outside of strings, names and comments, and knows the
//! shell's own commands where a statement could begin: they end with their line, semicolon or not.

/// A word for the shell itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `quit`, `exit`, `\q`.
    Quit,
    /// `help`, `\h`, `?`.
    Help,
}

impl Command {
    fn of(text: &str) -> Option<Command> {
        match text.trim().to_lowercase().as_str() {
            "quit" | "exit" | "\\q" => Some(Command::Quit),
            "help" | "\\h" | "?" => Some(Command::Help),
            _ => None,
        }
    }
}

/// What is done in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A complete statement, without semicolon and surrounding space; never empty.
    Statement(String),
    /// A command of the shell.
    Command(Command),
}

/// A text's steps, and what is left without a semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// What is to be done, in order.
    pub(super) steps: Vec<Step>,
    /// The rest; empty if there is nothing but space and comments.
    pub(super) rest: String,
    /// Whether the rest ends inside a string or a comment.
    pub(super) is_open: bool,
}

/// Where the scanner is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    Quoted(char),
    Line,
    Block,
}

/// Splits a text.
pub(super) fn split(text: &str) -> Split {
    let mut steps = Vec::new();
    let mut current = String::new();
    // Whether the current statement has anything but space and comments.
    let mut has_code = false;
    let mut inside = Inside::Code;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if inside == Inside::Code && !has_code && !letter.is_whitespace() && letter != ';' {
            let rest: String = letters.clone().take_while(|letter| !matches!(letter, ';' | '\n')).collect();
            if let Some(command) = Command::of(&format!("{letter}{rest}")) {
                steps.push(Step::Command(command));
                letters.by_ref().nth(rest.chars().count());
                current.clear();
                continue;
            }
        }
        let next = letters.peek().copied();
        match inside {
            Inside::Code => match letter {
                ';' => {
                    if has_code {
                        steps.push(Step::Statement(current.trim().to_owned()));
                    }
                    current.clear();
                    has_code = false;
                    continue;
                }
                '\'' | '"' | '`' => {
                    inside = Inside::Quoted(letter);
                    has_code = true;
                }
                '#' => inside = Inside::Line,
                '-' if next == Some('-') && begins_comment(&mut letters) => inside = Inside::Line,
                '/' if next == Some('*') => inside = Inside::Block,
                _ => has_code |= !letter.is_whitespace(),
            },
            Inside::Quoted(quote) => {
                if letter == '\\' && quote != '`' {
                    current.push(letter);
                    current.extend(letters.next());
                    continue;
                }
                if letter == quote {
                    inside = Inside::Code;
                }
            }
            Inside::Line => {
                if letter == '\n' {
                    inside = Inside::Code;
                }
            }
            Inside::Block => {
                if letter == '*' && next == Some('/') {
                    current.push(letter);
                    current.extend(letters.next());
                    inside = Inside::Code;
                    continue;
                }
            }
        }
        current.push(letter);
    }
    let is_open = matches!(inside, Inside::Quoted(_) | Inside::Block);
    let rest = if has_code || is_open { current.trim().to_owned() } else { String::new() };
    Split { steps, rest, is_open }
}

/// After the first `-` of `--`: a comment needs a space, or the end, behind it.
fn begins_comment(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    letters.clone().nth(1).is_none_or(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, statements: &[&str], rest: &str, is_open: bool) {
        let split = split(text);
        let steps: Vec<Step> =
            statements.iter().map(|statement| Step::Statement((*statement).to_owned())).collect();
        assert_eq!(split.steps, steps, "{text}");
        assert_eq!((split.rest.as_str(), split.is_open), (rest, is_open), "{text}");
    }

    #[test]
    fn semicolons_end_statements_only_in_code() {
        check("a; b ;c", &["a", "b"], "c", false);
        check("select ';', \";\", `;`;", &["select ';', \";\", `;`"], "", false);
        check("select 'it''s; \\';';", &["select 'it''s; \\';'"], "", false);
        check("a -- ; no\n;", &["a -- ; no"], "", false);
        check("a # ; no\n; b /* ; */;", &["a # ; no", "b /* ; */"], "", false);
        check("select 1--1;", &["select 1--1"], "", false);
        check(";;;", &[], "", false);
        check("-- only a comment\n", &[], "", false);
        check("select 'open;", &[], "select 'open;", true);
        check("/* open ;", &[], "/* open ;", true);
    }
    #[test]
    fn commands_stand_where_statements_begin() {
        let quit = || Step::Command(Command::Quit);
        let statement = |text: &str| Step::Statement(text.to_owned());
        for text in ["exit", "quit;", " EXIT ; ", "\\q", "\\q\n", "-- bye\nexit\n"] {
            let split = split(text);
            assert_eq!((split.steps, split.rest.as_str()), (vec![quit()], ""), "{text}");
        }
        assert_eq!(split("?\nhelp").steps, [Step::Command(Command::Help), Step::Command(Command::Help)]);
        assert_eq!(
            split("select 1;\nexit\nselect 2;").steps,
            [statement("select 1"), quit(), statement("select 2")]
        );
        assert_eq!(split("select 1; exit").steps, [statement("select 1"), quit()]);
        // Inside a statement these are words like others.
        check("select a as\nexit\n;", &["select a as\nexit"], "", false);
        check("exit from t;", &["exit from t"], "", false);
    }
}
