//! The columns of a table.

use serde_json::{Value, json};

/// One column: its name, its type and whether only wide tables show it.
pub struct Column {
    pub name: &'static str,
    pub kind: &'static str,
    pub format: &'static str,
    pub priority: i64,
    pub description: &'static str,
}

const fn column(name: &'static str, kind: &'static str, priority: i64) -> Column {
    Column {
        name,
        kind,
        format: "",
        priority,
        description: "",
    }
}

/// A column of text.
pub const fn text(name: &'static str) -> Column {
    column(name, "string", 0)
}

/// A column of text that `-o wide` shows.
pub const fn wide(name: &'static str) -> Column {
    column(name, "string", 1)
}

pub const fn number(name: &'static str) -> Column {
    column(name, "integer", 0)
}

pub const fn flag(name: &'static str) -> Column {
    column(name, "boolean", 0)
}

pub const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    priority: 0,
    description: "Name must be unique within a namespace. Is required when creating resources, although some \
        resources may allow a client to request the generation of an appropriate name automatically. Name is \
        primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: \
        https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
};

const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It \
    is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. \
    It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More \
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

pub const AGE: Column = Column {
    name: "Age",
    kind: "string",
    format: "",
    priority: 0,
    description: CREATED,
};

/// What kinds without columns of their own show.
pub const PLAIN: &[Column] = &[
    NAME,
    Column {
        name: "Created At",
        kind: "date",
        format: "",
        priority: 0,
        description: CREATED,
    },
];

impl Column {
    /// The `TableColumnDefinition`.
    pub fn describe(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority,
        })
    }
}
