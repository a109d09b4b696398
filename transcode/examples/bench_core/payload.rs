//! Deliveries like those of a hosting platform: always the same, so that two builds measure the same work.
//!
//! 520 spans per delivery from four services, 11 attributes per span: request handlers, database calls and
//! functions, with repeated keys and values that repeat (routes, methods) or do not (paths with ids,
//! statements). A tenth of the spans have an exception event.

/// Start time of the first span.
const STARTED_AT_NS: u64 = 1_780_000_000_000_000_000;
/// Spans per delivery.
pub const SPANS: usize = 520;
const SERVICES: [&str; 4] = [
    "storefront-web",
    "checkout-api",
    "inventory",
    "notification-worker",
];
const REGIONS: [&str; 4] = ["iad1", "fra1", "sfo1", "hnd1"];
const ROUTES: [&str; 6] = [
    "/api/products/[id]",
    "/api/cart/[id]/items",
    "/checkout/[step]",
    "/account/orders/[id]",
    "/search",
    "/api/webhooks/payments",
];
const TABLES: [&str; 5] = [
    "products",
    "orders",
    "cart_items",
    "customers",
    "stock_levels",
];
const AGENTS: [&str; 3] = [
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
    "curl/8.11.0",
];

/// Value of an attribute.
pub enum Value {
    Text(String),
    Int(i64),
    Double(f64),
    Bool(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Keys and values.
pub type Attributes = Vec<(&'static str, Value)>;

pub struct Resource {
    pub attributes: Attributes,
    pub scope: (&'static str, &'static str),
    pub spans: Vec<Span>,
}

#[expect(clippy::struct_field_names, reason = "named as in OTLP")]
pub struct Span {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub parent_span_id: Option<[u8; 8]>,
    pub name: String,
    pub kind: i64,
    pub start_unix_nano: u64,
    pub end_unix_nano: u64,
    pub attributes: Attributes,
    pub exception: Option<Attributes>,
    pub status_code: i64,
}

/// Deterministic pseudo-random numbers (`SplitMix64`).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u32) -> u32 {
        let scaled = (self.next() >> 32) * u64::from(bound);
        u32::try_from(scaled >> 32).unwrap_or_default()
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let bound = u32::try_from(choices.len()).unwrap_or(u32::MAX);
        choices[self.below(bound) as usize]
    }

    fn id(&mut self) -> [u8; 8] {
        self.next().max(1).to_be_bytes()
    }
}

/// Returns one delivery.
pub fn delivery(random: &mut Random) -> Vec<Resource> {
    let mut clock = STARTED_AT_NS + u64::from(random.below(1_000_000_000));
    let service = |(ordinal, name): (usize, &&'static str)| Resource {
        attributes: resource_attributes(name, random),
        scope: [
            ("next.js", "15.3.1"),
            ("@opentelemetry/instrumentation-pg", "0.51.0"),
        ][ordinal % 2],
        spans: spans(random, &mut clock, SPANS / SERVICES.len()),
    };
    SERVICES.iter().enumerate().map(service).collect()
}

fn resource_attributes(service: &'static str, random: &mut Random) -> Attributes {
    vec![
        ("service.name", service.into()),
        ("platform.projectId", Value::Text(format!("prj_{service}"))),
        (
            "platform.deploymentId",
            Value::Text(format!("dpl_{:08x}", random.below(9))),
        ),
        (
            "deployment.environment.name",
            random.one_of(&["production", "preview"]).into(),
        ),
        ("cloud.region", random.one_of(&REGIONS).into()),
        ("telemetry.sdk.language", "nodejs".into()),
    ]
}

/// Returns spans of traces with about ten spans each: a request and the calls it makes.
fn spans(random: &mut Random, clock: &mut u64, count: usize) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::with_capacity(count);
    let mut trace_id = [0; 16];
    let mut root = None;
    for ordinal in 0..count {
        if ordinal % 10 == 0 {
            trace_id = u128::from(random.next())
                .rotate_left(61)
                .wrapping_mul(3)
                .max(1)
                .to_be_bytes();
            root = None;
        }
        let span = span(random, clock, trace_id, root);
        root = root.or(Some(span.span_id));
        spans.push(span);
    }
    spans
}

fn span(random: &mut Random, clock: &mut u64, trace_id: [u8; 16], root: Option<[u8; 8]>) -> Span {
    let (name, kind, attributes) = match (root, random.below(3)) {
        (None, _) => request(random),
        (_, 0) => function(random),
        _ => statement(random),
    };
    *clock += u64::from(random.below(400_000));
    let has_failed = random.below(10) == 0;
    Span {
        trace_id,
        span_id: random.id(),
        parent_span_id: root,
        name,
        kind,
        start_unix_nano: *clock,
        end_unix_nano: *clock + u64::from(random.below(80_000_000)),
        attributes,
        exception: has_failed.then(|| exception(random)),
        status_code: if has_failed {
            2
        } else {
            i64::from(random.below(2))
        },
    }
}

fn request(random: &mut Random) -> (String, i64, Attributes) {
    let (method, route) = (
        random.one_of(&["GET", "GET", "GET", "POST"]),
        random.one_of(&ROUTES),
    );
    let path = route
        .replace("[id]", &format!("{:x}", random.next() >> 24))
        .replace("[step]", "address");
    let attributes = vec![
        ("http.request.method", method.into()),
        ("http.route", route.into()),
        ("url.path", Value::Text(path)),
        ("url.scheme", "https".into()),
        ("server.address", "shop.example.com".into()),
        ("server.port", Value::Int(443)),
        (
            "http.response.status_code",
            Value::Int(random.one_of(&[200, 200, 304, 404])),
        ),
        ("user_agent.original", random.one_of(&AGENTS).into()),
        (
            "client.address",
            Value::Text(format!("203.0.{}.{}", random.below(114), random.below(256))),
        ),
        (
            "http.response.body.size",
            Value::Int(i64::from(random.below(90_000))),
        ),
        ("platform.cache.hit", Value::Bool(random.below(2) == 0)),
    ];
    (format!("{method} {route}"), 2, attributes)
}

fn statement(random: &mut Random) -> (String, i64, Attributes) {
    let table = random.one_of(&TABLES);
    let operation = random.one_of(&["SELECT", "SELECT", "INSERT", "UPDATE"]);
    let id = random.below(5_000_000);
    let query = match operation {
        "SELECT" => format!(
            "SELECT id, name, price_cents, updated_at FROM {table} WHERE id = {id} LIMIT 50"
        ),
        "INSERT" => {
            format!("INSERT INTO {table} (id, name, quantity) VALUES ({id}, $1, $2) RETURNING id")
        }
        _ => format!("UPDATE {table} SET quantity = quantity - $1 WHERE id = {id}"),
    };
    let attributes = vec![
        ("db.system.name", "postgresql".into()),
        ("db.namespace", "shop".into()),
        ("db.collection.name", table.into()),
        ("db.operation.name", operation.into()),
        ("db.query.text", Value::Text(query)),
        (
            "server.address",
            "ep-cool-darkness-123456.eu-central-1.aws.example.tech".into(),
        ),
        ("server.port", Value::Int(5432)),
        (
            "db.response.returned_rows",
            Value::Int(i64::from(random.below(50))),
        ),
        (
            "db.client.wait_ms",
            Value::Double(f64::from(random.below(100_000)) / 1000.0),
        ),
        ("db.client.pooled", Value::Bool(true)),
        ("thread.id", Value::Int(i64::from(random.below(16)))),
    ];
    (format!("{operation} {table}"), 3, attributes)
}

fn function(random: &mut Random) -> (String, i64, Attributes) {
    let name = random.one_of(&[
        "renderPage",
        "loadCart",
        "priceItems",
        "authorize",
        "resolveFlags",
    ]);
    let attributes = vec![
        ("code.function.name", name.into()),
        (
            "code.file.path",
            Value::Text(format!("/var/task/.next/server/chunks/{name}.js")),
        ),
        ("code.line.number", Value::Int(i64::from(random.below(900)))),
        (
            "app.user.id",
            Value::Text(format!("usr_{:012x}", random.next() >> 16)),
        ),
        (
            "app.tenant",
            random.one_of(&["acme", "globex", "initech"]).into(),
        ),
        ("app.flag.new_checkout", Value::Bool(random.below(2) == 0)),
        (
            "process.memory.used_mb",
            Value::Double(f64::from(random.below(4_000)) / 8.0),
        ),
        (
            "process.cpu.utilization",
            Value::Double(f64::from(random.below(1_000_000)) / 1_000_000.0),
        ),
        ("faas.coldstart", Value::Bool(random.below(20) == 0)),
        (
            "faas.invocation_id",
            Value::Text(format!("{:016x}", random.next())),
        ),
        ("next.span_type", "AppRender.getBodyResult".into()),
    ];
    (name.to_owned(), 1, attributes)
}

fn exception(random: &mut Random) -> Attributes {
    let line = random.below(400);
    vec![
        (
            "exception.type",
            random.one_of(&["TypeError", "TimeoutError"]).into(),
        ),
        (
            "exception.message",
            "Cannot read properties of undefined (reading 'id')".into(),
        ),
        (
            "exception.stacktrace",
            Value::Text(format!(
                "TypeError: Cannot read properties of undefined (reading 'id')\n    at priceItems (/var/task/chunks/cart.js:{line}:17)\n    at async loadCart (/var/task/chunks/cart.js:88:5)"
            )),
        ),
    ]
}
