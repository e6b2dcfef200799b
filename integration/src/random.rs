//! Random schemas, data, transactions and views of the supported SQL, from a seed.
//!
//! Values come from small domains, so that keys meet, groups empty, ties and duplicates happen, and
//! NULLs, trailing spaces, extreme numbers and -0.0 are common.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// INT.
    Int,
    /// BIGINT UNSIGNED.
    Unsigned,
    /// DECIMAL(10, 2).
    Decimal,
    /// DOUBLE.
    Double,
    /// VARCHAR(10).
    Text,
    /// DATE.
    Date,
    /// DATETIME(3).
    Datetime,
}

const KINDS: [Kind; 7] =
    [Kind::Int, Kind::Unsigned, Kind::Decimal, Kind::Double, Kind::Text, Kind::Date, Kind::Datetime];

impl Kind {
    fn sql(self) -> &'static str {
        match self {
            Kind::Int => "INT",
            Kind::Unsigned => "BIGINT UNSIGNED",
            Kind::Decimal => "DECIMAL(10, 2)",
            Kind::Double => "DOUBLE",
            Kind::Text => "VARCHAR(10)",
            Kind::Date => "DATE",
            Kind::Datetime => "DATETIME(3)",
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::Unsigned | Kind::Decimal | Kind::Double)
    }

    /// A literal from the kind's small domain.
    fn literal(self, random: &mut StdRng) -> String {
        let pick = |random: &mut StdRng, values: &[&str]| {
            (*values.choose(random).expect("a domain has values")).to_owned()
        };
        match self {
            Kind::Int => pick(random, &["0", "1", "2", "3", "-1", "7", "2147483647", "-2147483648"]),
            Kind::Unsigned => {
                pick(random, &["0", "1", "2", "3", "18446744073709551615", "9223372036854775808"])
            }
            Kind::Decimal => pick(random, &["0.00", "1.50", "-1.50", "2.25", "99999999.99", "-0.01"]),
            Kind::Double => pick(random, &["0", "-0.0", "1.5", "1e308", "-1e308", "1e-300", "0.1", "0.2"]),
            Kind::Text => pick(random, &["'a'", "'a '", "'b'", "''", "'B'", "'日本'", "'b  '", "'zz'"]),
            Kind::Date => pick(random, &["'2013-02-08'", "'2013-02-09'", "'0001-01-01'", "'9999-12-31'"]),
            Kind::Datetime => pick(
                random,
                &["'2013-02-08 01:02:03.004'", "'2013-02-08 01:02:03'", "'1969-12-31 23:59:59.999'"],
            ),
        }
    }
}

/// A column of a random table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// Whether NULL is refused.
    pub not_null: bool,
}

/// A random table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// How many of the first columns are the primary key; 0 for none.
    pub n_key_columns: usize,
}

impl Table {
    /// A random table of the given name.
    ///
    /// # Panics
    /// Never: each choice has something to choose from.
    pub fn random(name: &str, random: &mut StdRng) -> Table {
        let n_key_columns = *[0, 1, 1, 2].choose(random).expect("a choice");
        let n_columns = random.random_range(3..=5);
        let mut columns = Vec::new();
        for index in 0..n_columns {
            // Doubles make poor keys; the first column is a number, so that each table can be summed.
            let kind = match index {
                0 => Kind::Int,
                1 if n_key_columns > 1 => {
                    *[Kind::Text, Kind::Unsigned, Kind::Date].choose(random).expect("a choice")
                }
                _ => *KINDS.choose(random).expect("a choice"),
            };
            let not_null = index < n_key_columns || random.random_bool(0.3);
            columns.push(Column { name: format!("c{index}"), kind, not_null });
        }
        Table { name: name.to_owned(), columns, n_key_columns }
    }

    /// CREATE TABLE.
    #[must_use]
    pub fn create(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for column in &self.columns {
            let null = if column.not_null { " NOT NULL" } else { "" };
            parts.push(format!("{} {}{null}", column.name, column.kind.sql()));
        }
        if self.n_key_columns > 0 {
            let names: Vec<&str> =
                self.columns[..self.n_key_columns].iter().map(|column| column.name.as_str()).collect();
            parts.push(format!("PRIMARY KEY ({})", names.join(", ")));
        }
        format!("CREATE TABLE {} ({})", self.name, parts.join(", "))
    }

    fn value(&self, index: usize, random: &mut StdRng) -> String {
        let column = &self.columns[index];
        if !column.not_null && random.random_bool(0.2) {
            return "NULL".to_owned();
        }
        column.kind.literal(random)
    }

    /// A random DML statement on the table; may fail with a duplicate key, which is fine.
    pub fn statement(&self, random: &mut StdRng) -> String {
        match random.random_range(0..10) {
            0..=4 => self.insert(random),
            5..=7 => {
                let index = random.random_range(0..self.columns.len());
                let value = self.value(index, random);
                let name = &self.columns[index].name;
                format!("UPDATE {} SET {name} = {value} WHERE {}", self.name, self.condition("", random))
            }
            _ => format!("DELETE FROM {} WHERE {}", self.name, self.condition("", random)),
        }
    }

    /// A random INSERT of one to three rows.
    pub fn insert(&self, random: &mut StdRng) -> String {
        let n_rows = random.random_range(1..=3);
        let mut rows = Vec::new();
        for _ in 0..n_rows {
            let values: Vec<String> =
                (0..self.columns.len()).map(|index| self.value(index, random)).collect();
            rows.push(format!("({})", values.join(", ")));
        }
        format!("INSERT INTO {} VALUES {}", self.name, rows.join(", "))
    }

    fn column(&self, random: &mut StdRng) -> &Column {
        self.columns.choose(random).expect("a table has columns")
    }

    /// A random predicate over the table's columns under a qualifier (`""` or `"a."`).
    fn condition(&self, qualifier: &str, random: &mut StdRng) -> String {
        let column = self.column(random);
        let name = format!("{qualifier}{}", column.name);
        let literal = column.kind.literal(random);
        match random.random_range(0..7) {
            0 => format!("{name} = {literal}"),
            1 => format!("{name} > {literal}"),
            2 => format!("{name} <= {literal}"),
            3 => format!("{name} IS NULL"),
            4 => format!("{name} <> {literal}"),
            5 => format!("({name} >= {literal} OR {qualifier}c0 = 1)"),
            _ => format!("{name} IN ({literal}, {})", column.kind.literal(random)),
        }
    }

    fn aggregate(&self, qualifier: &str, random: &mut StdRng) -> String {
        let column = self.column(random);
        let name = format!("{qualifier}{}", column.name);
        let plain = ["count", "min", "max", "approx_count_distinct"];
        let numeric = ["count", "min", "max", "approx_count_distinct", "sum", "avg"];
        let function = if column.kind.is_number() { numeric.choose(random) } else { plain.choose(random) };
        match random.random_range(0..6) {
            0 => "count(*)".to_owned(),
            1 => format!("count(DISTINCT {name})"),
            _ => format!("{}({name})", function.expect("a choice")),
        }
    }

    /// A pair of columns of one kind of two tables, if there is one.
    fn join_columns<'a>(&'a self, other: &'a Table, random: &mut StdRng) -> Option<(&'a Column, &'a Column)> {
        let mut pairs = Vec::new();
        for left in &self.columns {
            pairs.extend(
                other.columns.iter().filter(|right| right.kind == left.kind).map(|right| (left, right)),
            );
        }
        pairs.choose(random).copied()
    }
}

/// A random query over two tables, of the SQL that views support.
pub fn query(left: &Table, right: &Table, random: &mut StdRng) -> String {
    match random.random_range(0..12) {
        0 => filter_and_project(left, random),
        1 | 2 => group(left, random),
        3 => global(left, random),
        4 => format!("SELECT DISTINCT {} FROM {}", two_columns(left, random), left.name),
        5 => union(left, right, random),
        6 | 7 => join(left, right, random),
        8 => grouped_join(left, right, random),
        9 => membership(left, right, random),
        10 => correlated(left, right, random),
        _ => format!(
            "SELECT g, count(*) AS n FROM (SELECT c0 AS g FROM {} WHERE {}) s GROUP BY g",
            left.name,
            left.condition("", random)
        ),
    }
}

fn two_columns(table: &Table, random: &mut StdRng) -> String {
    let (one, two) = (table.column(random), table.column(random));
    format!("{} AS x, {} AS y", one.name, two.name)
}

fn filter_and_project(table: &Table, random: &mut StdRng) -> String {
    let columns = two_columns(table, random);
    format!("SELECT {columns}, c0 FROM {} WHERE {}", table.name, table.condition("", random))
}

fn group(table: &Table, random: &mut StdRng) -> String {
    let key = &table.column(random).name;
    let (one, two) = (table.aggregate("", random), table.aggregate("", random));
    let having = if random.random_bool(0.3) { " HAVING count(*) > 1" } else { "" };
    let filter = if random.random_bool(0.4) {
        format!(" WHERE {}", table.condition("", random))
    } else {
        String::new()
    };
    format!("SELECT {key} AS g, {one} AS a, {two} AS b FROM {}{filter} GROUP BY {key}{having}", table.name)
}

fn global(table: &Table, random: &mut StdRng) -> String {
    let (one, two) = (table.aggregate("", random), table.aggregate("", random));
    format!(
        "SELECT {one} AS a, {two} AS b, count(*) AS n FROM {} WHERE {}",
        table.name,
        table.condition("", random)
    )
}

fn union(left: &Table, right: &Table, random: &mut StdRng) -> String {
    let all = if random.random_bool(0.7) { "UNION ALL" } else { "UNION" };
    format!(
        "SELECT c0 AS x FROM {} WHERE {} {all} SELECT c0 FROM {} WHERE {}",
        left.name,
        left.condition("", random),
        right.name,
        right.condition("", random)
    )
}

fn on(left: &Table, right: &Table, random: &mut StdRng) -> String {
    let (one, two) = left.join_columns(right, random).expect("each table has an integer");
    let residual = match random.random_range(0..4) {
        0 => " AND a.c0 <= b.c0".to_owned(),
        1 => format!(" AND {}", right.condition("b.", random)),
        _ => String::new(),
    };
    format!("a.{} = b.{}{residual}", one.name, two.name)
}

fn join(left: &Table, right: &Table, random: &mut StdRng) -> String {
    let kind = ["JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN"].choose(random).expect("a choice");
    let (one, two) = (left.column(random), right.column(random));
    let on = on(left, right, random);
    let filter = if random.random_bool(0.3) {
        format!(" WHERE {}", left.condition("a.", random))
    } else {
        String::new()
    };
    format!(
        "SELECT a.{} AS x, b.{} AS y, a.c0 AS z FROM {} a {kind} {} b ON {on}{filter}",
        one.name, two.name, left.name, right.name
    )
}

fn grouped_join(left: &Table, right: &Table, random: &mut StdRng) -> String {
    let kind = ["JOIN", "LEFT JOIN"].choose(random).expect("a choice");
    let key = &left.column(random).name;
    let aggregate = right.aggregate("b.", random);
    let on = on(left, right, random);
    format!(
        "SELECT a.{key} AS g, {aggregate} AS a, count(*) AS n FROM {} a {kind} {} b ON {on} GROUP BY a.{key}",
        left.name, right.name
    )
}

fn membership(left: &Table, right: &Table, random: &mut StdRng) -> String {
    let (one, two) = left.join_columns(right, random).expect("each table has an integer");
    let (one, two) = (&one.name, &two.name);
    let filter = right.condition("", random);
    let columns = two_columns(left, random);
    let inner = format!("SELECT {two} FROM {} WHERE {filter}", right.name);
    match random.random_range(0..4) {
        0 => format!("SELECT {columns} FROM {} WHERE {one} IN ({inner})", left.name),
        1 => format!("SELECT {columns} FROM {} WHERE {one} NOT IN ({inner})", left.name),
        2 => format!(
            "SELECT a.{one} AS x, a.c0 AS z FROM {} a WHERE EXISTS (SELECT 1 FROM {} b WHERE b.{two} = a.{one})",
            left.name, right.name
        ),
        _ => format!(
            "SELECT a.{one} AS x, a.c0 AS z FROM {} a WHERE NOT EXISTS (SELECT 1 FROM {} b WHERE b.{two} = a.{one})",
            left.name, right.name
        ),
    }
}

fn correlated(left: &Table, right: &Table, random: &mut StdRng) -> String {
    let (one, two) = left.join_columns(right, random).expect("each table has an integer");
    let aggregate = *["count(*)", "max(b.c0)", "sum(b.c0)"].choose(random).expect("a choice");
    if random.random_bool(0.7) {
        format!(
            "SELECT a.c0 AS x, a.{} AS y, (SELECT {aggregate} FROM {} b WHERE b.{} = a.{}) AS n FROM {} a",
            one.name, right.name, two.name, one.name, left.name
        )
    } else {
        format!(
            "SELECT a.c0 AS x FROM {} a WHERE a.c0 >= (SELECT min(b.c0) FROM {} b)",
            left.name, right.name
        )
    }
}
