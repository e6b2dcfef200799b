//! The statements that the stand-in knows, read from their text.
//!
//! No more than Tidemill says to TiDB and what tests do by hand. Anything else is a syntax error, so that a
//! statement that a real TiDB would understand in another way is not passed over.

use super::Refused;

/// A table's name: its database and its own.
pub(crate) type Name = (String, String);

/// A column of CREATE TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredColumn {
    pub(crate) name: String,
    /// In capitals, without what stands in brackets.
    pub(crate) type_name: String,
    pub(crate) sizes: Vec<i64>,
    pub(crate) unsigned: bool,
    pub(crate) not_null: bool,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// SET, and what else has no effect here.
    Nothing,
    /// SELECT of variables.
    Variables(Vec<String>),
    /// SHOW VARIABLES of one.
    ShowVariable(String),
    CreateDatabase {
        name: String,
        if_not_exists: bool,
    },
    CreateTable {
        name: Name,
        columns: Vec<DeclaredColumn>,
        key: Vec<String>,
        clustered: bool,
    },
    RenameTables(Vec<(Name, Name)>),
    DropTable {
        name: Name,
        if_exists: bool,
    },
    Truncate(Name),
    AddColumn {
        name: Name,
        column: DeclaredColumn,
    },
    AddIndex {
        name: Name,
        index: String,
        columns: Vec<String>,
    },
}

impl Statement {
    /// Reads a statement.
    pub(crate) fn parse(text: &str) -> Result<Statement, Refused> {
        let mut words = Words::new(text);
        let statement = words.statement().ok_or_else(|| {
            Refused::new(1064, format!("You have an error in your SQL syntax; near: {text}"))
        })?;
        Ok(statement)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    /// A name in backquotes.
    Name(String),
    /// A keyword or name without, in capitals, and as it stands.
    Plain(String, String),
    Text(String),
    Number(i64),
    Sign(char),
}

struct Words {
    words: Vec<Word>,
    at: usize,
}

impl Words {
    fn new(text: &str) -> Words {
        // What TiDB alone reads: the comment's text is part of the statement.
        let text = text.replace("/*T![clustered_index]", " ").replace("*/", " ");
        let mut words = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(first) = rest.next() {
            match first {
                '`' | '\'' => {
                    let mut found = String::new();
                    while let Some(next) = rest.next() {
                        if next == first && rest.next_if_eq(&first).is_none() {
                            break;
                        }
                        found.push(next);
                    }
                    words.push(if first == '`' { Word::Name(found) } else { Word::Text(found) });
                }
                first if first.is_alphanumeric() || first == '_' || first == '@' => {
                    let mut found = first.to_string();
                    while let Some(next) = rest.next_if(|next| next.is_alphanumeric() || "_@".contains(*next))
                    {
                        found.push(next);
                    }
                    words.push(match found.parse() {
                        Ok(number) => Word::Number(number),
                        Err(_) => Word::Plain(found.to_uppercase(), found),
                    });
                }
                first if first.is_whitespace() || first == ';' => {}
                sign => words.push(Word::Sign(sign)),
            }
        }
        Words { words, at: 0 }
    }

    fn next(&mut self) -> Option<Word> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    /// Takes keywords if they come next.
    fn takes(&mut self, keywords: &[&str]) -> bool {
        let is_there = keywords.iter().enumerate().all(|(offset, keyword)| {
            matches!(self.words.get(self.at + offset), Some(Word::Plain(word, _)) if word == keyword)
        });
        if is_there {
            self.at += keywords.len();
        }
        is_there
    }

    fn takes_sign(&mut self, sign: char) -> bool {
        let is_there = self.words.get(self.at) == Some(&Word::Sign(sign));
        self.at += usize::from(is_there);
        is_there
    }

    fn is_over(&self) -> bool {
        self.at >= self.words.len()
    }

    fn word(&mut self) -> Option<String> {
        match self.next()? {
            Word::Name(name) | Word::Plain(_, name) => Some(name),
            _ => None,
        }
    }

    fn table(&mut self) -> Option<Name> {
        let first = self.word()?;
        if self.takes_sign('.') { Some((first, self.word()?)) } else { Some(("test".to_owned(), first)) }
    }

    fn statement(&mut self) -> Option<Statement> {
        if self.takes(&["SET"]) {
            return Some(Statement::Nothing);
        }
        if self.takes(&["SELECT"]) {
            return self.variables();
        }
        if self.takes(&["SHOW", "GLOBAL", "VARIABLES", "LIKE"]) {
            return match self.next()? {
                Word::Text(name) => Some(Statement::ShowVariable(name)),
                _ => None,
            };
        }
        let statement = self.definition()?;
        self.is_over().then_some(statement)
    }

    fn variables(&mut self) -> Option<Statement> {
        let mut names = Vec::new();
        loop {
            let word = self.word()?;
            names.push(word.strip_prefix("@@")?.to_owned());
            if !self.takes_sign(',') {
                return Some(Statement::Variables(names));
            }
        }
    }

    fn definition(&mut self) -> Option<Statement> {
        if self.takes(&["CREATE", "DATABASE"]) {
            let if_not_exists = self.takes(&["IF", "NOT", "EXISTS"]);
            return Some(Statement::CreateDatabase { name: self.word()?, if_not_exists });
        }
        if self.takes(&["CREATE", "TABLE"]) {
            return self.create_table();
        }
        if self.takes(&["RENAME", "TABLE"]) {
            let mut renames = Vec::new();
            loop {
                let from = self.table()?;
                self.takes(&["TO"]).then_some(())?;
                renames.push((from, self.table()?));
                if !self.takes_sign(',') {
                    return Some(Statement::RenameTables(renames));
                }
            }
        }
        if self.takes(&["DROP", "TABLE"]) {
            let if_exists = self.takes(&["IF", "EXISTS"]);
            return Some(Statement::DropTable { name: self.table()?, if_exists });
        }
        if self.takes(&["TRUNCATE", "TABLE"]) {
            return Some(Statement::Truncate(self.table()?));
        }
        self.takes(&["ALTER", "TABLE"]).then_some(())?;
        let name = self.table()?;
        if self.takes(&["ADD", "COLUMN"]) {
            return Some(Statement::AddColumn { name, column: self.column()? });
        }
        self.takes(&["ADD", "INDEX"]).then_some(())?;
        Some(Statement::AddIndex { name, index: self.word()?, columns: self.list()? })
    }

    fn create_table(&mut self) -> Option<Statement> {
        let name = self.table()?;
        let (mut columns, mut key, mut clustered) = (Vec::new(), Vec::new(), false);
        self.takes_sign('(').then_some(())?;
        loop {
            if self.takes(&["PRIMARY", "KEY"]) {
                key = self.list()?;
                clustered = self.takes(&["CLUSTERED"]);
            } else {
                columns.push(self.column()?);
            }
            if !self.takes_sign(',') {
                break;
            }
        }
        self.takes_sign(')').then_some(())?;
        if self.takes(&["DEFAULT", "CHARSET"]) {
            self.takes_sign('=').then_some(())?;
            self.word()?;
            self.takes(&["COLLATE"]).then_some(())?;
            self.takes_sign('=').then_some(())?;
            (self.word()? == "utf8mb4_bin").then_some(())?;
        }
        Some(Statement::CreateTable { name, columns, key, clustered })
    }

    fn list(&mut self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        self.takes_sign('(').then_some(())?;
        loop {
            names.push(self.word()?);
            if !self.takes_sign(',') {
                self.takes_sign(')').then_some(())?;
                return Some(names);
            }
        }
    }

    fn column(&mut self) -> Option<DeclaredColumn> {
        let name = self.word()?;
        let type_name = self.word()?.to_uppercase();
        let mut sizes = Vec::new();
        if self.takes_sign('(') {
            loop {
                match self.next()? {
                    Word::Number(size) => sizes.push(size),
                    _ => return None,
                }
                if !self.takes_sign(',') {
                    self.takes_sign(')').then_some(())?;
                    break;
                }
            }
        }
        let unsigned = self.takes(&["UNSIGNED"]);
        if self.takes(&["CHARACTER", "SET", "UTF8MB4", "COLLATE"]) {
            (self.word()? == "utf8mb4_bin").then_some(())?;
        }
        let not_null = self.takes(&["NOT", "NULL"]);
        if !not_null {
            self.takes(&["NULL"]);
        }
        Some(DeclaredColumn { name, type_name, sizes, unsigned, not_null })
    }
}
