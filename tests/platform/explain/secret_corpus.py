"""Secrets that have a form, and harmless texts of spans, assembled at run time from random characters.

No secret is stored in the repository: prefixes and random characters are joined only here.
"""

from __future__ import annotations

import json
import random
import string
import uuid
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

_ALPHANUMERIC: Final = string.ascii_letters + string.digits
_HEX: Final = "0123456789abcdef"
_UPPER: Final = string.ascii_uppercase + string.digits
_URL_SAFE: Final = _ALPHANUMERIC + "_-"
TOKEN_FORMS: Final = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_", "hf_"), (_ALPHANUMERIC, 36)),
    **dict.fromkeys(("AKIA", "ASIA"), (_UPPER, 16)),
    **dict.fromkeys(("sk_live_", "sk_test_", "rk_live_", "rzp_live_", "whsec_"), (_ALPHANUMERIC, 24)),
    **dict.fromkeys(("glpat-", "gldt-", "glrt-", "glptt-"), (_URL_SAFE, 20)),
    **dict.fromkeys(("dop_v1_", "doo_v1_", "dor_v1_"), (_HEX, 64)),
    **dict.fromkeys(("shpat_", "shpca_", "shppa_", "shpss_", "dapi", "pul-", "key-", "SK"), (_HEX, 32)),
    **dict.fromkeys(("sk-", "sk-proj-", "sk-ant-api03-", "gsk_", "xai-", "pplx-"), (_ALPHANUMERIC, 48)),
    **dict.fromkeys(("lin_api_", "sbp_", "dckr_pat_", "figd_", "r8_", "tfp_"), (_ALPHANUMERIC, 40)),
    **dict.fromkeys(("hvs.", "hvb.", "pypi-AgEIcHlwaS5vcmc"), (_URL_SAFE, 90)),
    **dict.fromkeys(("ntn_", "secret_", "nvapi-", "ATATT3xFfGF0", "CFPAT-"), (_ALPHANUMERIC, 43)),
    **dict.fromkeys(("AIza", "ya29.", "GOCSPX-", "sl.u.", "duffel_live_"), (_URL_SAFE, 35)),
    "github_pat_": (_ALPHANUMERIC + "_", 82),
    "glsa_": (_ALPHANUMERIC, 32),
    "rubygems_": (_HEX, 48),
    "sntrys_": (_ALPHANUMERIC, 64),
    "PMAK-": (_HEX, 24),
    "pscale_tkn_": (_URL_SAFE, 43),
    "tskey-auth-": (_ALPHANUMERIC, 24),
    "xoxb-": (string.digits, 24),
    "xapp-1-": (_UPPER, 24),
    "xkeysib-": (_HEX, 64),
    "NRAK-": (_UPPER, 27),
    "AGE-SECRET-KEY-1": (_UPPER, 58),
    "LTAI": (_ALPHANUMERIC, 20),
}
"""Alphabet and length of the random part after each prefix."""
SYNTAXES: Final = (
    "{}",
    "call failed for {}: 401",
    "curl -H 'X-Custom: {}' https://api.shop.example/v1",
    "https://api.shop.example/v1/items?k={}&page=2",
    '{{"value": "{}"}}',
    'body {{\\"value\\":\\"{}\\"}}',
    "VALUE={}",
    "value: {}",
    "<value>{}</value>",
    "next=%2Fcart%3Fk%3D{}",
)
KEYED_SYNTAXES: Final = (
    "{key}={value}",
    "{key}: {value}",
    '{{"{key}": "{value}", "id": 7}}',
    'sent {{\\"{key}\\":\\"{value}\\"}}',
    r'{{"a": "{{\"b\": \"{{\\\"{key}\\\":\\\"{value}\\\"}}\"}}"}}',
    "<{key}>{value}</{key}>",
    '<add key="{key}" value="{value}" />',
    "Server=db;Database=shop;User Id=app;{key}={value};Encrypt=true",
    "https://shop.example/cart?page=2&{key}={value}",
    "/login?next=%2Fcart%3F{key}%3D{value}",
    "command --{key} {value} --verbose",
    "command --{key}={value}",
    "export {key}={value}",
    "login failed with {key}={value} for user 7",
    "- {key}: '{value}'",
    '{key} = "{value}"',
    "{{'{key}': '{value}'}}",
)
SECRET_KEYS: Final = (
    *("password", "passwd", "pwd", "DB_PASSWORD", "dbPassword", "PGPASSWORD", "user.password", "passphrase"),
    *(
        "secret",
        "client_secret",
        "clientSecret",
        "AWS_SECRET_ACCESS_KEY",
        "secretKey",
        "access_key",
        "accessKey",
    ),
    *("token", "access_token", "refreshToken", "id_token", "csrf_token", "X-Auth-Token", "auth_token"),
    *("api_key", "apiKey", "apikey", "x-api-key", "API_KEY", "AccountKey", "SharedAccessKey", "private_key"),
    *("authorization", "Proxy-Authorization", "auth", "jwt", "otp", "dsn", "SENTRY_DSN", "database_url"),
    *(
        "cookie",
        "set-cookie",
        "session_id",
        "sessionid",
        "JSESSIONID",
        "credentials",
        "encryption_key",
        "sig",
    ),
    *("X-Amz-Signature", "webhook_secret", "signing_key", "MYSQL_PWD", "redis_password", "connectionString"),
)


def characters(chance: random.Random, alphabet: str, length: int) -> str:
    """Return random characters."""
    return "".join(chance.choices(alphabet, k=length))


def tokens() -> Iterator[str]:
    """Yield a token of each vendor, and of other forms."""
    chance = random.Random(1)
    for prefix, (alphabet, length) in TOKEN_FORMS.items():
        yield prefix + characters(chance, alphabet, length)
    yield f"SG.{characters(chance, _URL_SAFE, 22)}.{characters(chance, _URL_SAFE, 43)}"
    yield f"eyJ{characters(chance, _URL_SAFE, 30)}.eyJ{characters(chance, _URL_SAFE, 60)}.x"
    yield f"{characters(chance, string.digits, 9)}:AA{characters(chance, _URL_SAFE, 33)}"
    yield f"{characters(chance, _HEX, 32)}-us12"


def secrets() -> Iterator[str]:
    """Yield texts with a secret that has a form."""
    chance = random.Random(2)
    for token in tokens():
        for syntax in SYNTAXES:
            yield syntax.format(token)
    for key in SECRET_KEYS:
        for syntax in KEYED_SYNTAXES:
            yield syntax.format(key=key, value=characters(chance, _ALPHANUMERIC, 14))
    yield from _other_secrets(chance)


def _other_secrets(chance: random.Random) -> Iterator[str]:
    word, digits = characters(chance, _ALPHANUMERIC, 20), characters(chance, _HEX, 32)
    for scheme in (
        "postgres",
        "postgresql+asyncpg",
        "mysql",
        "mongodb+srv",
        "redis",
        "amqps",
        "https",
        "smtp",
        "ftp",
    ):
        yield f"{scheme}://app:{word}@db.internal:5432/shop"
        yield f"cannot connect to {scheme}://:{word[:8]}@db/0"
        yield quote(f"{scheme}://app:{word}@db/shop", safe="")
    for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA "):
        key = f"-----BEGIN {kind}" + f"PRIVATE KEY-----\n{word}\n-----END {kind}PRIVATE KEY-----"
        yield key
        yield json.dumps({"pem": key})
    yield "-----BEGIN PGP" + f" PRIVATE KEY BLOCK-----\n{word}"
    for scheme in ("Bearer", "Basic", "bearer", "Token", "token"):
        yield f"sent {scheme} {word}="
        yield f"Authorization: {scheme} {word}"
    yield f"https://{digits}@o1.ingest.sentry.io/42"
    yield f"https://{digits}:{digits}@sentry.example/42"
    yield "https://hooks.slack" + f".com/services/T0AAAAAAA/B0AAAAAAA/{word}"
    yield f"https://discord.com/api/webhooks/123456789012345678/{word}{word}"
    yield f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={word}==;EndpointSuffix=core.windows.net"
    yield f"https://a.blob.core.windows.net/c/b?sv=2022-11-02&sp=r&sig={word}%3D"
    yield f"https://b.s3.amazonaws.com/o?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature={digits}{digits}"
    yield f"curl -u app:{word} https://shop.example"
    yield f"curl -sS -X POST --user 'app:{word}' https://shop.example"
    yield f"mysql -h db -u app -p{word} shop"
    yield f"sshpass -p {word} ssh app@host"
    yield f"AWS4-HMAC-SHA256 Credential=X/20261123/eu/s3/aws4_request, Signature={digits}{digits}"
    yield f'<wsse:Password Type="text">{word}</wsse:Password>'
    yield f"jdbc:oracle:thin:app/{word}@db:1521/shop"


def harmless() -> Iterator[str]:
    """Yield texts that spans have and that no rule may replace."""
    chance = random.Random(3)
    for _ in range(60):
        yield from _identifiers(chance)
    yield from _STATEMENTS
    for text in _MESSAGES:
        yield text
        yield json.dumps({"message": text})


def _identifiers(chance: random.Random) -> Iterator[str]:
    digits, number = (characters(chance, _HEX, 64), chance.randrange(1, 9_999_999))
    id_ = str(uuid.UUID(int=chance.getrandbits(128)))
    yield id_
    yield digits[:32]
    yield digits[:16]
    yield digits[:40]
    yield f"sha256:{digits}"
    yield f"sha512-{characters(chance, _ALPHANUMERIC + '+/', 86)}=="
    yield f"registry.example.com/shop/auth-service:{digits[:7]}"
    yield f"ghcr.io/acme/token-service@sha256:{digits}"
    yield f"redis:{number % 9}.2.1-alpine"
    yield f"00-{digits[:32]}-{digits[:16]}-01"
    yield f"https://shop.example/orders/{id_}?page={number}&sort=price&q=red+shoes"
    yield f"https://cdn.shop.example/static/main.{digits[:8]}.js"
    yield f"SELECT * FROM orders WHERE id = {number} AND user_id = '{id_}'"  # noqa: S608 - a text
    yield f"GET /api/v1/users/{number}/sessions/{id_}"
    yield f"arn:aws:lambda:eu-west-1:123456789012:function:shop-{number}"
    yield f"checkout-7d9f8b6c5-{characters(chance, string.ascii_lowercase, 5)}"
    yield f"dpl_{characters(chance, _ALPHANUMERIC, 24)}"
    yield f"prj_{characters(chance, _ALPHANUMERIC, 24)}"
    yield f"cus_{characters(chance, _ALPHANUMERIC, 14)}"
    yield f"req_{characters(chance, _ALPHANUMERIC, 24)}"
    yield f"commit {digits[:40]} (tag v{number % 9}.1)"
    yield f"cache:product:{number}:{digits[:32]}"
    yield f"session:{number}:cart"
    yield f'{{"id": "{id_}", "key": "{digits[:32]}", "count": {number}}}'
    yield f'W/"{digits[:27]}"'
    yield f"  at handle (/app/src/auth/token.js:{number % 900}:12)"
    yield f'  File "/srv/app/session.py", line {number % 900}, in refresh\n    token = self.refresh(token)'
    yield f"input_tokens={number} output_tokens={number % 99} max_tokens=4096"
    yield f"10.{number % 255}.3.4:5432"
    yield f"2026-11-23T10:00:{number % 59:02}.123Z"
    yield f"idempotency_key={id_}"
    yield f"user {id_} logged in from 10.1.2.{number % 255}"
    yield f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/{number % 130}.0.0.0 Safari/537.36"


_STATEMENTS: Final = (
    *(
        f"UPDATE users SET password = {each} WHERE id = {each}"  # noqa: S608 - a text
        for each in ("?", "$1", "%s", ":password", "@p1")
    ),
    "SELECT id, password, token FROM users WHERE session_id = $1",
    "SELECT u.token FROM users u JOIN sessions s ON u.token = s.token",
    "INSERT INTO sessions (token, user_id) VALUES ($1, $2) ON CONFLICT (token) DO NOTHING",
    "DELETE FROM tokens WHERE expires_at < now()",
    "CREATE TABLE users (id uuid, password varchar(60), token text)",
    "ALTER TABLE users ADD COLUMN password_hash text",
    "db.users.find({password: {$exists: true}})",
    "SELECT * FROM cart WHERE id = ?",
)
_MESSAGES: Final = (
    *(
        "invalid token: expired",
        "token expired",
        "Unexpected token < in JSON at position 0",
        "session: closed",
    ),
    *("password: required", "the password is too short", "TokenExpiredError: jwt expired", "auth: failed"),
    *("token: null", "password=***", "secret: [redacted]", "Authorization: <redacted>", "token=${TOKEN}"),
    *("token_type=bearer&expires_in=3600", "missing authorization header", "Basic authentication required"),
    *("bearer authentication is not supported", "no session cookie", "POST /oauth/token 401", "POST /login"),
    *("com.shop.auth.TokenService: started", "SessionManager: opening", "secret not found", "keys: 3"),
    *("postgres://db:5432/shop", "redis://cache:6379/0", "http://user@host/path", "mailto:a@shop.example"),
    *("https://shop.example:8443/path@2x.png", "git@github.com:acme/shop.git", "amqp://rabbit:5672//"),
    *(
        "kubectl get secret -n shop",
        "git checkout -b auth-token-refresh",
        "npm_config_registry",
        "task-runner-pool",
    ),
    *(
        "risk_assessment_service_worker",
        "disk-usage-collector-daemonset",
        "sk-learn-pipeline",
        "hf_transformers",
    ),
    *("deadlock on row 7", "connect ECONNREFUSED 127.0.0.1:5432", "context deadline exceeded", "EOF"),
    *("-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "key=cart", "key: user:42", "code=404"),
    *("partition_key=orders-7", "routing_key: order.created", "public_key_id=7", "primary key (id)"),
    *(
        "AssertionError: expected 1 to equal 2",
        "const token = req.headers.authorization",
        "token = get_token()",
    ),
    *("token.count=512", "sessions: 12", "session_duration=35ms", "cookie_name=sid", "has_password=true"),
    *("auth.type: oauth2", "secretName: tls-cert", "token_endpoint: https://idp.example/oauth/token"),
    *(
        "eyJpZCI6MTIzfQ==",
        "data:image/png;base64,iVBORw0KGgo=",
        "PWD=/usr/src/app",
        "author: Ada",
        "otp sent",
    ),
    *("password=password", "login(user, password=form.password)", "x" * 9_000, "GET /cart", "日本"),
)
