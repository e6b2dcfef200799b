//! An Avro schema, from its JSON.
//!
//! Names are resolved by namespace; a type may contain itself. Defaults and aliases are for readers with a
//! schema of their own, and are not kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::{Error, Result};

use crate::json::Json;

/// A schema that can be read with.
#[derive(Clone, Debug)]
pub struct AvroSchema {
    pub(super) root: Node,
    /// Named types by full name, so that a type may contain itself.
    pub(super) named: Arc<BTreeMap<String, Node>>,
}

/// A type.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Null,
    Boolean,
    Int(Logical),
    Long(Logical),
    Float,
    Double,
    Bytes(Logical),
    Text(Logical),
    Fixed(usize, Logical),
    Enum(Arc<[String]>),
    Array(Box<Node>),
    Map(Box<Node>),
    Union(Vec<Node>),
    Record(Arc<[Field]>),
    /// A named type, defined elsewhere.
    Reference(String),
}

/// A field of a record.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) node: Node,
}

/// What a value means beyond its type: Avro's own words, or Kafka Connect's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Logical {
    #[default]
    Plain,
    /// With the digits after the point.
    Decimal(u8),
    Days,
    /// A time of day: the number of them in a second.
    Time(i64),
    /// A local time: the number of units in a second.
    Local(i64),
    /// An instant: the number of units in a second.
    Instant(i64),
    /// An instant as text in ISO 8601.
    ZonedText,
    Json,
    /// Bits, the lowest byte first.
    Bits,
}

const MILLIS: i64 = 1_000;
const MICROS: i64 = 1_000_000;
const NANOS: i64 = 1_000_000_000;

/// How deep a schema may nest.
const DEPTH_MAX: usize = 64;

impl AvroSchema {
    /// Reads a schema.
    ///
    /// # Errors
    /// `Invalid` if it is no Avro schema; the message says where.
    pub fn parse(text: &str) -> Result<AvroSchema> {
        let json =
            Json::parse(text.as_bytes()).map_err(|error| Error::invalid(format!("avro schema: {error}")))?;
        let mut parser = Parser { named: BTreeMap::new(), defined: Vec::new() };
        let root =
            parser.node(&json, "", 0).map_err(|what| Error::invalid(format!("avro schema: {what}")))?;
        let unknown = parser.unknown(&root);
        match unknown {
            Some(name) => Err(Error::invalid(format!("avro schema: there is no type {name}"))),
            None => Ok(AvroSchema { root, named: Arc::new(parser.named) }),
        }
    }
}

struct Parser {
    named: BTreeMap<String, Node>,
    /// Names of types that are being defined.
    defined: Vec<String>,
}

impl Parser {
    fn node(&mut self, json: &Json<'_>, namespace: &str, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err("it nests too deep".to_owned());
        }
        match json {
            Json::Text(name) => Ok(primitive(name, Logical::Plain)
                .unwrap_or_else(|| Node::Reference(full_name(name, namespace)))),
            Json::Array(branches) => {
                let branches = branches.iter().map(|branch| self.node(branch, namespace, depth + 1));
                Ok(Node::Union(branches.collect::<Result<_, _>>()?))
            }
            Json::Object(_) => self.object(json, namespace, depth),
            other => Err(format!("{} is no type", other.kind())),
        }
    }

    fn object(&mut self, json: &Json<'_>, namespace: &str, depth: usize) -> Result<Node, String> {
        let kind = json.member("type").ok_or("a type without `type`")?;
        let Some(kind) = kind.text() else { return self.node(kind, namespace, depth + 1) };
        let logical = logical(json);
        if let Some(node) = primitive(kind, logical) {
            return Ok(node);
        }
        let inner = |name: &str| json.member(name).ok_or_else(|| format!("{kind} without `{name}`"));
        match kind {
            "array" => Ok(Node::Array(Box::new(self.node(inner("items")?, namespace, depth + 1)?))),
            "map" => Ok(Node::Map(Box::new(self.node(inner("values")?, namespace, depth + 1)?))),
            "record" | "error" | "enum" | "fixed" => self.named(json, kind, namespace, logical, depth),
            other => Ok(Node::Reference(full_name(other, namespace))),
        }
    }

    fn named(
        &mut self,
        json: &Json<'_>,
        kind: &str,
        namespace: &str,
        logical: Logical,
        depth: usize,
    ) -> Result<Node, String> {
        let name =
            json.member("name").and_then(Json::text).ok_or_else(|| format!("{kind} without `name`"))?;
        let namespace = json.member("namespace").and_then(Json::text).unwrap_or(namespace);
        let name = full_name(name, namespace);
        let namespace = name.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        if self.defined.contains(&name) {
            return Err(format!("type {name} is defined twice"));
        }
        self.defined.push(name.clone());
        let node = match kind {
            "enum" => {
                let symbols =
                    json.member("symbols").and_then(Json::elements).ok_or("enum without `symbols`")?;
                let symbols: Option<Arc<[String]>> =
                    symbols.iter().map(|symbol| symbol.text().map(str::to_owned)).collect();
                Node::Enum(symbols.ok_or("a symbol that is no text")?)
            }
            "fixed" => {
                let size =
                    json.member("size").and_then(Json::unsigned).and_then(|size| usize::try_from(size).ok());
                Node::Fixed(size.ok_or("fixed without `size`")?, logical)
            }
            _ => {
                let fields =
                    json.member("fields").and_then(Json::elements).ok_or("record without `fields`")?;
                let fields = fields.iter().map(|field| {
                    let name = field.member("name").and_then(Json::text).ok_or("a field without a name")?;
                    let kind = field.member("type").ok_or_else(|| format!("field {name} without a type"))?;
                    Ok::<_, String>(Field {
                        name: name.to_owned(),
                        node: self.node(kind, &namespace, depth + 1)?,
                    })
                });
                Node::Record(fields.collect::<Result<_, _>>()?)
            }
        };
        self.named.insert(name.clone(), node);
        Ok(Node::Reference(name))
    }

    /// A name that is used and not defined.
    fn unknown(&self, root: &Node) -> Option<String> {
        let within = |node: &Node| self.unknown_within(node);
        within(root).or_else(|| self.named.values().find_map(within))
    }

    fn unknown_within(&self, node: &Node) -> Option<String> {
        match node {
            Node::Reference(name) => (!self.named.contains_key(name)).then(|| name.clone()),
            Node::Array(inner) | Node::Map(inner) => self.unknown_within(inner),
            Node::Union(branches) => branches.iter().find_map(|branch| self.unknown_within(branch)),
            Node::Record(fields) => fields.iter().find_map(|field| self.unknown_within(&field.node)),
            _ => None,
        }
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn primitive(name: &str, logical: Logical) -> Option<Node> {
    Some(match name {
        "null" => Node::Null,
        "boolean" => Node::Boolean,
        "int" => Node::Int(logical),
        "long" => Node::Long(logical),
        "float" => Node::Float,
        "double" => Node::Double,
        "bytes" => Node::Bytes(logical),
        "string" => Node::Text(logical),
        _ => return None,
    })
}

/// Avro's `logicalType`, or the name that Kafka Connect's converter leaves in `connect.name`.
fn logical(json: &Json<'_>) -> Logical {
    // A scale that cannot be read makes the logical type invalid: then Avro's rules leave the plain one.
    let decimal = || {
        let connect = json.member("connect.parameters").and_then(|found| found.member("scale"));
        let scale = match (json.member("scale"), connect) {
            (Some(own), _) => own.unsigned().and_then(|scale| u8::try_from(scale).ok()),
            (None, Some(connect)) => connect.text().and_then(|scale| scale.parse().ok()),
            (None, None) => Some(0),
        };
        scale.map_or(Logical::Plain, Logical::Decimal)
    };
    let connect = json.member("connect.name").and_then(Json::text).unwrap_or_default();
    match connect {
        "io.debezium.time.Date" | "org.apache.kafka.connect.data.Date" => return Logical::Days,
        "io.debezium.time.Time" | "org.apache.kafka.connect.data.Time" => return Logical::Time(MILLIS),
        "io.debezium.time.MicroTime" => return Logical::Time(MICROS),
        "io.debezium.time.NanoTime" => return Logical::Time(NANOS),
        "io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp" => {
            return Logical::Local(MILLIS);
        }
        "io.debezium.time.MicroTimestamp" => return Logical::Local(MICROS),
        "io.debezium.time.NanoTimestamp" => return Logical::Local(NANOS),
        "io.debezium.time.ZonedTimestamp" => return Logical::ZonedText,
        "io.debezium.data.Json" => return Logical::Json,
        "io.debezium.data.Bits" => return Logical::Bits,
        "org.apache.kafka.connect.data.Decimal" => return decimal(),
        _ => {}
    }
    match json.member("logicalType").and_then(Json::text).unwrap_or_default() {
        "decimal" => decimal(),
        "date" => Logical::Days,
        "time-millis" => Logical::Time(MILLIS),
        "time-micros" => Logical::Time(MICROS),
        "timestamp-millis" => Logical::Instant(MILLIS),
        "timestamp-micros" => Logical::Instant(MICROS),
        "timestamp-nanos" => Logical::Instant(NANOS),
        "local-timestamp-millis" => Logical::Local(MILLIS),
        "local-timestamp-micros" => Logical::Local(MICROS),
        "local-timestamp-nanos" => Logical::Local(NANOS),
        _ => Logical::Plain,
    }
}
