//! The demo's input: three real days of flights, as rows and as a log of events.
//!
//! The files of `examples/data` are compiled in, so that the demo runs from any directory. A flight
//! becomes up to three events on a simulated clock: scheduled, departed, landed, or cancelled.

use anyhow::{Context, Result};
use chrono::{Duration, NaiveDate, NaiveDateTime};

const AIRLINES: &str = include_str!("../../../examples/data/airlines.csv");
const AIRPORTS: &str = include_str!("../../../examples/data/airports.csv");
const PLANES: &str = include_str!("../../../examples/data/planes.csv");
const WEATHER: &str = include_str!("../../../examples/data/weather.csv");
const FLIGHTS: &str = include_str!("../../../examples/data/flights.csv");

/// The day of the month on which the flights begin.
const FIRST_DAY: i64 = 7;

/// How long before its scheduled departure a flight is put into the table.
const SCHEDULED_AHEAD: Duration = Duration::hours(2);

/// Minutes between leaving the runway and standing at the gate that `air_time` does not cover.
const TAXI_MINUTES: i64 = 20;

/// A table of the demo with its rows as SQL literals.
pub(super) struct Table {
    /// The statement that makes it.
    pub(super) create: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    /// Its rows, each `(…)`.
    pub(super) rows: Vec<String>,
}

/// What happens to a flight.
pub(super) enum Action {
    /// It enters the table.
    Scheduled {
        /// The row as an SQL tuple.
        row: String,
    },
    /// It leaves the gate.
    Departed {
        /// Minutes late; negative if early.
        dep_delay: i64,
    },
    /// It reaches its gate.
    Landed {
        /// Minutes late, if it is known.
        arr_delay: Option<i64>,
        /// Minutes in the air, if they are known.
        air_time: Option<i64>,
    },
    /// It will not fly: the row is deleted.
    Cancelled,
}

/// An event of the log.
pub(super) struct Event {
    /// The simulated time.
    pub(super) at: NaiveDateTime,
    /// The flight's primary key as an SQL condition.
    pub(super) key: String,
    /// What happens.
    pub(super) action: Action,
}

/// The dimension tables, filled before the replay begins.
pub(super) fn dimensions() -> Result<Vec<Table>> {
    Ok(vec![
        Table {
            name: "airlines",
            create: "CREATE TABLE airlines (carrier VARCHAR(2) NOT NULL PRIMARY KEY, name VARCHAR(64) NOT NULL)",
            rows: rows(AIRLINES, &[text("carrier"), text("name")])?,
        },
        Table {
            name: "airports",
            create: "CREATE TABLE airports (faa VARCHAR(3) NOT NULL PRIMARY KEY, name VARCHAR(80) NOT NULL, \
                     lat DOUBLE, lon DOUBLE, alt INT)",
            rows: rows(AIRPORTS, &[text("faa"), text("name"), number("lat"), number("lon"), number("alt")])?,
        },
        Table {
            name: "planes",
            create: "CREATE TABLE planes (tailnum VARCHAR(6) NOT NULL PRIMARY KEY, year INT, \
                     manufacturer VARCHAR(40), model VARCHAR(24), seats INT)",
            rows: rows(
                PLANES,
                &[text("tailnum"), number("year"), text("manufacturer"), text("model"), number("seats")],
            )?,
        },
        Table {
            name: "weather",
            create: "CREATE TABLE weather (origin VARCHAR(3) NOT NULL, time_hour DATETIME NOT NULL, temp DOUBLE, \
                     wind_speed DOUBLE, precip DOUBLE, visib DOUBLE, PRIMARY KEY (origin, time_hour))",
            rows: rows(
                WEATHER,
                &[
                    text("origin"),
                    time("time_hour"),
                    number("temp"),
                    number("wind_speed"),
                    number("precip"),
                    number("visib"),
                ],
            )?,
        },
    ])
}

/// The table that the events change.
pub(super) const FLIGHTS_TABLE: &str = "CREATE TABLE flights (time_hour DATETIME NOT NULL, carrier VARCHAR(2) NOT NULL, \
    flight INT NOT NULL, origin VARCHAR(3) NOT NULL, dest VARCHAR(3) NOT NULL, tailnum VARCHAR(6), \
    sched_dep DATETIME NOT NULL, dep_delay INT, arr_delay INT, air_time INT, distance INT NOT NULL, \
    landed TINYINT NOT NULL DEFAULT 0, PRIMARY KEY (time_hour, carrier, flight, origin))";

/// The log of the first days, in the order of the simulated clock.
pub(super) fn events(n_days: u8) -> Result<Vec<Event>> {
    let mut reader = csv::Reader::from_reader(FLIGHTS.as_bytes());
    let headers = reader.headers()?.clone();
    let mut events = Vec::new();
    for record in reader.records() {
        let record = record?;
        let flight = Row { headers: &headers, record: &record };
        if flight.integer("day")?.context("column day is missing")? < FIRST_DAY + i64::from(n_days) {
            flight_events(&flight, &mut events)?;
        }
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

fn flight_events(flight: &Row<'_>, events: &mut Vec<Event>) -> Result<()> {
    let integer = |name: &str| flight.integer(name);
    let required = |name: &str| integer(name)?.with_context(|| format!("column {name} is missing"));
    let (year, month, day) = (required("year")?, required("month")?, required("day")?);
    let date = NaiveDate::from_ymd_opt(i32::try_from(year)?, u32::try_from(month)?, u32::try_from(day)?);
    let minutes = required("hour")? * 60 + required("minute")?;
    let sched_dep = date.context("a date that exists")?.and_hms_opt(0, 0, 0).context("midnight")?
        + Duration::minutes(minutes);
    let key_values = [time("time_hour"), text("carrier"), number("flight"), text("origin")];
    let key_names = ["time_hour", "carrier", "flight", "origin"];
    let mut conditions = Vec::new();
    for (name, column) in key_names.iter().zip(&key_values) {
        conditions.push(format!("{name} = {}", column.literal(flight)?));
    }
    let key = conditions.join(" AND ");
    let mut literals = Vec::new();
    for column in key_values.iter().chain(&[text("dest"), text("tailnum")]) {
        literals.push(column.literal(flight)?);
    }
    literals.push(format!("'{sched_dep}'"));
    literals.push(number("distance").literal(flight)?);
    let row = format!("({})", literals.join(", "));
    events.push(Event {
        at: sched_dep - SCHEDULED_AHEAD,
        key: key.clone(),
        action: Action::Scheduled { row },
    });
    let Some(dep_delay) = integer("dep_delay")? else {
        events.push(Event { at: sched_dep, key, action: Action::Cancelled });
        return Ok(());
    };
    let departed = sched_dep + Duration::minutes(dep_delay);
    events.push(Event { at: departed, key: key.clone(), action: Action::Departed { dep_delay } });
    let (arr_delay, air_time) = (integer("arr_delay")?, integer("air_time")?);
    let minutes_under_way = air_time.unwrap_or(180) + TAXI_MINUTES;
    let landed = departed + Duration::minutes(minutes_under_way);
    events.push(Event { at: landed, key, action: Action::Landed { arr_delay, air_time } });
    Ok(())
}

/// A record of a CSV file with its header.
struct Row<'a> {
    headers: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    /// The value of a column; `NA` and the empty string are missing.
    fn get(&self, name: &str) -> Result<Option<&str>> {
        let position = self.headers.iter().position(|header| header == name);
        let value = self.record.get(position.with_context(|| format!("no column {name}"))?);
        Ok(value.filter(|value| !value.is_empty() && *value != "NA"))
    }

    /// The value of a column of whole numbers.
    fn integer(&self, name: &str) -> Result<Option<i64>> {
        let value = self.get(name)?.map(str::parse::<i64>);
        value.transpose().with_context(|| format!("column {name}"))
    }
}

enum Kind {
    Text,
    Number,
    Time,
}

/// A column of a file and how it becomes a literal.
struct Column {
    name: &'static str,
    kind: Kind,
}

fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text }
}

fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number }
}

fn time(name: &'static str) -> Column {
    Column { name, kind: Kind::Time }
}

impl Column {
    fn literal(&self, row: &Row<'_>) -> Result<String> {
        let Some(value) = row.get(self.name)? else { return Ok("NULL".to_owned()) };
        Ok(match self.kind {
            Kind::Text => format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''")),
            Kind::Number => value.to_owned(),
            Kind::Time => format!("'{}'", value.trim_end_matches('Z').replace('T', " ")),
        })
    }
}

fn rows(file: &str, columns: &[Column]) -> Result<Vec<String>> {
    let mut reader = csv::Reader::from_reader(file.as_bytes());
    let headers = reader.headers()?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let row = Row { headers: &headers, record: &record };
        let literals: Result<Vec<String>> = columns.iter().map(|column| column.literal(&row)).collect();
        rows.push(format!("({})", literals?.join(", ")));
    }
    Ok(rows)
}
