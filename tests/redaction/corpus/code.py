"""Secrets in source code, connection strings, HTTP messages, diffs and logs."""

from __future__ import annotations

from tests.redaction.corpus.make import (
    Cases,
    alnum,
    base64std,
    base64url,
    basic,
    digits,
    hexes,
    jwt,
    plain_password,
    short_password,
    uuid,
    words_password,
)

CASES = Cases()
add = CASES.add

# --- assignments ---------------------------------------------------------------------------------

ASSIGNMENTS = {
    "python": ('PASSWORD = "§v§"\nTIMEOUT = 30', "TIMEOUT = 30"),
    "python-typed": ('api_password: str = "§v§"', "api_password: str"),
    "python-final": ("DB_PASSWORD: Final[str] = '§v§'", "Final[str]"),
    "python-attribute": ("self.password = '§v§'", "self.password"),
    "python-bytes": ('secret_key = b"§v§"', "secret_key"),
    "python-item": ('app.config["SECRET_KEY"] = "§v§"', "app.config"),
    "python-environ": ('os.environ["DB_PASSWORD"] = "§v§"', "os.environ"),
    "python-argument": ('connect(host="db1", user="app", password="§v§")', 'host="db1"'),
    "python-concatenated": ('password = ("§v§")', "password"),
    "python-triple": ('PASSPHRASE = """§v§"""', "PASSPHRASE"),
    "rust-const": ('const API_SECRET: &str = "§v§";', "&str"),
    "rust-static": ('static DB_PASSWORD: &\'static str = "§v§";', "&'static str"),
    "rust-let": ('let password = String::from("§v§");', "String::from"),
    "rust-to-string": ('let token: String = "§v§".to_string();', ".to_string()"),
    "rust-some": ('password: Some("§v§".into()),', ".into()"),
    "swift-let": ('let apiSecret: String = "§v§"', "apiSecret: String"),
    "swift-private": ('private static let password = "§v§"', "private static let"),
    "kotlin-val": ('val dbPassword: String = "§v§"', "dbPassword: String"),
    "kotlin-const": ('private const val API_PASSWORD = "§v§"', "private const val"),
    "go-short": ('password := "§v§"', "password"),
    "go-const": ('const dbPassword string = "§v§"', "dbPassword string"),
    "go-raw": ("var clientSecret = `§v§`", "clientSecret"),
    "go-struct": ('cfg := Config{Addr: "db1:5432", Password: "§v§"}', "db1:5432"),
    "go-bytes": ('var jwtSecret = []byte("§v§")', "[]byte"),
    "java-final": ('private static final String PASSWORD = "§v§";', "static final String"),
    "java-chars": ('char[] password = "§v§".toCharArray();', ".toCharArray()"),
    "csharp-const": ('private const string Password = "§v§";', "private const string"),
    "csharp-verbatim": ('var password = @"§v§";', "password"),
    "csharp-property": ('public string ApiSecret { get; set; } = "§v§";', "{ get; set; }"),
    "typescript-typed": ("const apiPassword: string = '§v§';", "apiPassword: string"),
    "typescript-readonly": ('private readonly token: string = "§v§";', "readonly token: string"),
    "typescript-object": ("auth: { user: 'bot', pass: '§v§' },", "user: 'bot'"),
    "javascript-var": ("var password='§v§',debug=false;", "debug=false"),
    "javascript-template": ("const password = `§v§`;", "password"),
    "php-variable": ("$dbPassword = '§v§';", "$dbPassword"),
    "php-array": ("'password' => '§v§', 'port' => 3306,", "3306"),
    "ruby-symbol": ('password: "§v§", host: "db1"', "db1"),
    "ruby-rocket": (":password => '§v§'", ":password"),
    "perl-hash": ("my %c = (user => 'app', password => '§v§');", "user => 'app'"),
    "elixir": ('config :shop, Repo, password: "§v§", pool_size: 10', "pool_size: 10"),
    "scala": ('val password: Option[String] = Some("§v§")', "Option[String]"),
    "c-array": ('static const char password[] = "§v§";', "static const char"),
    "c-pointer": ('const char *wifi_password = "§v§";', "wifi_password"),
    "lua": ('local password = "§v§"', "local password"),
    "r-lang": ('db_password <- "§v§"', "db_password"),
    "matlab": ("password = '§v§';", "password"),
    "dart": ("final String apiSecret = '§v§';", "final String apiSecret"),
    "vb": ('Dim password As String = "§v§"', "As String"),
    "nix": ('services.x.password = "§v§";', "services.x.password"),
    "groovy": ("def dbPassword = '§v§'", "def dbPassword"),
    "haskell": ('dbPassword :: Text\ndbPassword = "§v§"', ":: Text"),
    "clojure": ('{:user "app" :password "§v§"}', ':user "app"'),
    "powershell": ("[string]$Password = '§v§'", "[string]$Password"),
}
for name, (line, keep) in ASSIGNMENTS.items():
    add("code-assignment", name, f"{line}\n", [keep], v=words_password(f"code/{name}"))

DEFAULTS = {
    "javascript-or": ("const secret = process.env.JWT_SECRET || '§v§';", "process.env.JWT_SECRET"),
    "javascript-nullish": (
        'const pw = process.env.DB_PASSWORD ?? "§v§";',
        "process.env.DB_PASSWORD",
    ),
    "python-getenv": ('os.getenv("DB_PASSWORD", "§v§")', "os.getenv"),
    "python-environ-get": ("os.environ.get('SECRET_KEY', '§v§')", "os.environ.get"),
    "python-config": ("config('DJANGO_SECRET_KEY', default='§v§')", "DJANGO_SECRET_KEY"),
    "python-parameter": ('def login(user: str, password: str = "§v§") -> None: ...', "user: str"),
    "python-field": ('password: str = Field(default="§v§", min_length=8)', "min_length=8"),
    "argparse": (
        'parser.add_argument("--password", default="§v§", help="of the database")',
        "help=",
    ),
    "click": (
        '@click.option("--api-key", default="§v§", show_default=False)',
        "show_default=False",
    ),
    "php-env": ("'password' => env('DB_PASSWORD', '§v§'),", "env("),
    "php-getenv": ("$pw = getenv('DB_PASSWORD') ?: '§v§';", "getenv('DB_PASSWORD')"),
    "ruby-fetch": ("ENV.fetch('DB_PASSWORD', '§v§')", "ENV.fetch"),
    "ruby-or": ("password = ENV['DB_PASSWORD'] || '§v§'", "ENV['DB_PASSWORD']"),
    "go-or": ('password := cmp.Or(os.Getenv("DB_PASSWORD"), "§v§")', "os.Getenv"),
    "rust-unwrap": ('env::var("DB_PASSWORD").unwrap_or("§v§".into())', "env::var"),
    "java-default": ('System.getenv().getOrDefault("DB_PASSWORD", "§v§")', "System.getenv()"),
    "spring-placeholder": ("password: ${DB_PASSWORD:§v§}", "DB_PASSWORD"),
    "shell-default": ("PASSWORD=${PASSWORD:-§v§}", "PASSWORD="),
    "compose-default": ("MYSQL_PASSWORD: ${MYSQL_PASSWORD:-§v§}", "MYSQL_PASSWORD"),
    "csharp-nullish": ('var key = config["Jwt:Secret"] ?? "§v§";', 'config["Jwt:Secret"]'),
    "kotlin-elvis": ('val pw = System.getenv("DB_PASSWORD") ?: "§v§"', "System.getenv"),
    "dockerfile-arg": ("ARG DB_PASSWORD=§v§\nEXPOSE 80", "EXPOSE 80"),
    "dockerfile-env": ("ENV API_TOKEN §v§\nEXPOSE 80", "EXPOSE 80"),
}
for name, (line, keep) in DEFAULTS.items():
    add("code-default", name, f"{line}\n", [keep], v=plain_password(f"default/{name}"))

CALLS = {
    "setter-java": ('dataSource.setPassword("§v§");', "dataSource.setPassword"),
    "setter-camel": ('config.setClientSecret("§v§");', "config.setClientSecret"),
    "builder": ('builder.username("app").password("§v§").build();', 'username("app")'),
    "with-method": ('new Client().WithApiKey("§v§").WithTimeout(5)', "WithTimeout(5)"),
    "put-string": ('props.put("password", "§v§");', "props.put"),
    "set-property": (
        'System.setProperty("javax.net.ssl.trustStorePassword", "§v§");',
        "setProperty",
    ),
    "set-item": ("localStorage.setItem('authToken', '§v§');", "localStorage.setItem"),
    "set-header": ("request.setHeader('X-Api-Key', '§v§')", "X-Api-Key"),
    "header-add": ('req.Header.Set("X-Auth-Token", "§v§")', "req.Header.Set"),
    "basic-auth-go": ('req.SetBasicAuth("svc", "§v§")', '"svc"'),
    "requests-auth": ('requests.get(url, auth=("svc", "§v§"), timeout=5)', "timeout=5"),
    "http-basic": ('HTTPBasicAuth("svc", "§v§")', '"svc"'),
    "driver-manager": (
        'DriverManager.getConnection("jdbc:mysql://db1/shop", "app", "§v§");',
        "jdbc:mysql://db1/shop",
    ),
    "smtp-login": ('server.login("bot@example.com", "§v§")', "bot@example.com"),
    "mysqli": ("$db = new mysqli('db1', 'app', '§v§', 'shop');", "'shop'"),
    "php-pdo": ("new PDO('mysql:host=db1', 'app', '§v§');", "mysql:host=db1"),
    "php-define": ("define('DB_PASSWORD', '§v§');", "DB_PASSWORD"),
    "php-salt": ("define('AUTH_KEY',         '§v§');", "AUTH_KEY"),
    "c-define": ('#define WIFI_PASSWORD "§v§"', "#define WIFI_PASSWORD"),
    "c-define-cast": ('#define API_SECRET ((const char *)"§v§")', "const char"),
    "selenium": ('find(By.id("password")).sendKeys("§v§");', 'By.id("password")'),
    "playwright": ("await page.fill('#password', '§v§');", "#password"),
    "cypress": ("cy.get('input[name=password]').type('§v§{enter}')", "name=password"),
    "assert": ('assert user.check_password("§v§")', "check_password"),
    "create-user": ('User.objects.create_user("anna", password="§v§")', '"anna"'),
    "jwt-sign": ("jwt.sign({ id: 7 }, '§v§', { expiresIn: '1h' })", "expiresIn"),
    "paramiko": ('ssh.connect("build-07", username="root", password="§v§")', "build-07"),
    "compare": ('if (password === "§v§") { unlock(); }', "unlock()"),
    "compare-python": ("if form['password'] == '§v§':", "form['password']"),
}
for name, (line, keep) in CALLS.items():
    add("code-call", name, f"{line}\n", [keep], v=words_password(f"call/{name}"))

# --- connection strings --------------------------------------------------------------------------

CONNECTIONS = {
    "jdbc-query": ("jdbc:mysql://db1:3306/shop?user=app&password=§v§&useSSL=true", "useSSL=true"),
    "jdbc-sqlserver": (
        "jdbc:sqlserver://db1:1433;databaseName=shop;user=sa;password=§v§;encrypt=true",
        "databaseName=shop",
    ),
    "jdbc-oracle": ("jdbc:oracle:thin:hr/§v§@//db1:1521/ORCL", "@//db1:1521/ORCL"),
    "odbc": ("Driver={ODBC Driver 18};Server=db1;Uid=app;Pwd={§v§};Encrypt=yes;", "Encrypt=yes"),
    "ado-net": (
        "Server=db1;Database=Shop;User Id=sa;Password=§v§;TrustServerCertificate=True;",
        "sa",
    ),
    "ado-net-last": ("Data Source=db1;User ID=app;Initial Catalog=Shop;Password=§v§", "Shop"),
    "ado-net-quoted": ("Server=db1;User Id=app;Password='§v§';Pooling=false", "Pooling=false"),
    "sqlalchemy": ("postgresql+psycopg://app:§v§@db1:5432/shop?sslmode=require", "sslmode=require"),
    "libpq": (
        "host=db1 port=5432 dbname=shop user=app password=§v§ sslmode=require",
        "dbname=shop",
    ),
    "mongodb": ("mongodb://root:§v§@mongo1:27017,mongo2:27017/?replicaSet=rs0", "replicaSet=rs0"),
    "mongodb-srv": ("mongodb+srv://app:§v§@cluster0.ab1cd.example.net/shop", "cluster0.ab1cd"),
    "amqp": ("amqps://ingest:§v§@mq.example.com:5671/vhost", "mq.example.com:5671/vhost"),
    "redis": ("redis://:§v§@cache.example.com:6379/0", "cache.example.com:6379/0"),
    "redis-user": ("rediss://default:§v§@cache.example.com:6380", "cache.example.com:6380"),
    "stackexchange-redis": ("cache.example.com:6380,password=§v§,ssl=True", "ssl=True"),
    "smtp": ("smtp://bot%40example.com:§v§@smtp.example.com:587", "smtp.example.com:587"),
    "ldap": ("ldap://cn=admin:§v§@ldap.example.com", "ldap.example.com"),
    "ftp": ("ftp://anna:§v§@ftp.example.com/pub", "ftp.example.com/pub"),
    "sftp": ("sftp://anna:§v§@sftp.example.com:2222/in", "sftp.example.com:2222/in"),
    "clickhouse": ("clickhouse://default:§v§@ch1:9000/logs", "@ch1:9000/logs"),
    "mssql": ("mssql+pyodbc://sa:§v§@db1/shop?driver=ODBC+Driver+18", "ODBC+Driver+18"),
    "nats": ("nats://worker:§v§@nats1:4222", "@nats1:4222"),
    "http-proxy": ("HTTPS_PROXY=http://corp%5Canna:§v§@proxy:8080", "@proxy:8080"),
    "rtsp": ("rtsp://admin:§v§@192.0.2.31:554/stream1", "192.0.2.31:554/stream1"),
    "kafka-sasl": (
        "sasl.mechanism=PLAIN;sasl.username=ingest;sasl.password=§v§",
        "sasl.username=ingest",
    ),
    "snowflake": ("snowflake://anna:§v§@acme-eu/shop?warehouse=wh1", "warehouse=wh1"),
    "elasticsearch": ("https://elastic:§v§@es1:9200/_cat/indices?v", "@es1:9200/_cat/indices?v"),
    "at-sign-inside": ("postgres://app:@§v§@db1/shop", "db1/shop"),
}
for name, (line, keep) in CONNECTIONS.items():
    value = short_password(name) if name in {"rtsp", "ftp", "libpq"} else plain_password(name)
    add("connection-string", name, f"Connecting to {line}\n", [keep], v=value)

# --- HTTP ----------------------------------------------------------------------------------------

add(
    "http",
    "request",
    "POST /v1/orders HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer §t§\r\n"
    'Content-Type: application/json\r\n\r\n{"item": 4}\r\n',
    ["POST /v1/orders HTTP/1.1", "Host: api.example.com", '{"item": 4}'],
    t=base64url("http/request", 60),
)
add(
    "http",
    "basic",
    "GET / HTTP/1.1\nHost: intranet\nAuthorization: Basic §b§\nAccept: */*\n",
    ["Host: intranet", "Basic", "Accept: */*"],
    b=basic("anna", short_password("http/basic")),
)
add(
    "http",
    "digest",
    'Authorization: Digest username="anna", realm="x", uri="/", response="§r§"\n',
    ['username="anna"', 'realm="x"'],
    r=hexes("digest", 32),
)
add(
    "http",
    "token-scheme",
    "Authorization: token §t§\nAccept: application/vnd.github+json\n",
    ["application/vnd.github+json"],
    t=hexes("token-scheme", 40),
)
add(
    "http",
    "proxy-authorization",
    "Proxy-Authorization: Basic §b§\nProxy-Connection: keep-alive\n",
    ["Proxy-Authorization", "keep-alive"],
    b=basic("corp", plain_password("proxy-auth")),
)
add(
    "http",
    "bare-authorization",
    "authorization: §t§\ncontent-length: 0\n",
    ["content-length: 0"],
    t=alnum("bare-auth", 36),
)
add(
    "http",
    "csrf-and-custom",
    "X-CSRF-Token: §a§\nX-Vault-Token: §b§\nX-Request-Id: 77\n",
    ["X-CSRF-Token", "X-Request-Id: 77"],
    a=base64url("csrf", 44),
    b="hvs." + base64url("vault-header", 90),
)
add(
    "http",
    "json-response",
    'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"id":7,"apiToken":"§t§"}',
    ["HTTP/1.1 200 OK", '"id":7'],
    t=alnum("json-response", 40),
)
add(
    "http",
    "har-header",
    '{"name": "Authorization", "value": "Bearer §t§"}, {"name": "Accept", "value": "*/*"}',
    ["Authorization", '"*/*"'],
    t=jwt("har"),
)
add(
    "http",
    "header-map",
    "headers={authorization=[Bearer §t§], accept=[text/plain]}\n",
    ["accept=[text/plain]"],
    t=alnum("netty", 44),
)
add(
    "http",
    "aws-signature",
    "Authorization: AWS4-HMAC-SHA256 Credential=AKIA§i§/20250301/eu-west-1/s3/aws4_request, "
    "SignedHeaders=host;x-amz-date, Signature=§s§\n",
    ["AWS4-HMAC-SHA256", "SignedHeaders=host;x-amz-date"],
    {"i": alnum("sig4", 16).upper()},
    s=hexes("sig4", 64),
)
add(
    "cookie",
    "request",
    "Cookie: theme=dark; sessionid=§s§; lang=fr\n",
    ["Cookie: theme=dark", "lang=fr"],
    s=hexes("cookie", 32),
)
add(
    "cookie",
    "set-cookie",
    "Set-Cookie: connect.sid=s%3A§a§.§b§; Path=/; HttpOnly; SameSite=Lax\n",
    ["connect.sid", "Path=/; HttpOnly; SameSite=Lax"],
    a=base64url("sid", 32),
    b=alnum("sid/signature", 43),
)
add(
    "cookie",
    "remember-me",
    "set-cookie: remember_token=§s§; expires=Sat, 01 Mar 2025 12:00:00 GMT; secure\n",
    ["remember_token", "Sat, 01 Mar 2025 12:00:00 GMT"],
    s=base64url("remember", 64),
)
add(
    "cookie",
    "php-and-java",
    "Cookie: PHPSESSID=§a§; JSESSIONID=§b§\n",
    ["PHPSESSID", "JSESSIONID"],
    a=alnum("php", 26).lower(),
    b=hexes("java", 32).upper(),
)
add(
    "cookie",
    "netscape-jar",
    ".example.com\tTRUE\t/\tTRUE\t1767225600\tauth_token\t§s§\n",
    [".example.com", "1767225600"],
    s=hexes("jar", 40),
)
add(
    "cookie",
    "document-cookie",
    'document.cookie = "session=§s§; path=/; max-age=3600";\n',
    ["document.cookie", "max-age=3600"],
    s=base64url("document", 48),
)

# --- JSON Web Tokens -----------------------------------------------------------------------------

add("jwt", "bare", "The header was §t§ I think\n", ["The header was", "I think"], t=jwt("bare"))
add("jwt", "bearer", "Bearer §t§\n", ["Bearer"], t=jwt("bearer", iss="https://id.example.com"))
add(
    "jwt",
    "query",
    "wss://live.example.com/socket?token=§t§&room=4\n",
    ["wss://live.example.com/socket", "room=4"],
    t=jwt("query"),
)
add(
    "jwt",
    "json-field",
    '{"id_token":"§t§","scope":"openid"}',
    ["id_token", "openid"],
    t=jwt("json", email="anna@example.com"),
)
add(
    "jwt",
    "encrypted",
    "jwe: §t§\n",
    [],
    t=".".join(
        ["eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0", "", *(alnum(f"e{n}", 30) for n in "abc")]
    ),
)

# --- diffs ---------------------------------------------------------------------------------------

add(
    "diff",
    "changed-line",
    """
    diff --git a/settings.py b/settings.py
    index 1a2b3c4..5d6e7f8 100644
    --- a/settings.py
    +++ b/settings.py
    @@ -10,3 +10,3 @@
     HOST = "db1"
    -PASSWORD = "§a§"
    +PASSWORD = "§b§"
     PORT = 5432
    """,
    ["index 1a2b3c4..5d6e7f8", 'HOST = "db1"', "PORT = 5432"],
    a=words_password("diff/a"),
    b=words_password("diff/b"),
)
add(
    "diff",
    "dotenv",
    "@@ -1,2 +1,3 @@\n MODE=prod\n+STRIPE_SECRET=§t§\n-OLD_TOKEN=§u§\n",
    ["MODE=prod", "+STRIPE_SECRET", "-OLD_TOKEN"],
    t=alnum("diff/env", 32),
    u=alnum("diff/old", 32),
)
add(
    "diff",
    "yaml-pair",
    "   env:\n+    - name: SMTP_PASSWORD\n+      value: §p§\n",
    ["SMTP_PASSWORD"],
    p=plain_password("diff/yaml"),
)
add(
    "diff",
    "private-key",
    "+-----BEGIN RSA PRIVATE KEY-----\n+§a§\n+§b§\n+-----END RSA PRIVATE KEY-----\n",
    [],
    a=base64std("diff/pem/a", 48),
    b=base64std("diff/pem/b", 48),
)
add(
    "diff",
    "word-diff",
    "password: [-§a§-]{+§b§+}\n",
    ["password"],
    a=plain_password("word-diff/a"),
    b=plain_password("word-diff/b"),
)
add(
    "diff",
    "numbered-listing",
    "   11→host = db1\n   12→password = §p§\n   13→port = 5432\n",
    ["host = db1", "port = 5432"],
    p=plain_password("numbered"),
)
add(
    "diff",
    "grep-output",
    "config/app.yml:12:  secret_key_base: §s§\nconfig/app.yml:13:  port: 80\n",
    ["config/app.yml:12:", "port: 80"],
    s=hexes("grep", 128),
)

# --- logs ----------------------------------------------------------------------------------------

add(
    "logfmt",
    "password",
    'ts=2025-03-01T12:00:00Z level=debug msg="login" user=anna password=§p§ ip=192.0.2.7\n',
    ["level=debug", "user=anna", "ip=192.0.2.7"],
    p=plain_password("logfmt"),
)
add(
    "logfmt",
    "quoted",
    'level=info msg="issued" api_token="§t§" ttl=1h\n',
    ['msg="issued"', "ttl=1h"],
    t=base64url("logfmt", 40),
)
add(
    "json-lines",
    "field",
    '{"level":"info","msg":"login","user":"anna"}\n'
    '{"level":"debug","msg":"body","password":"§p§","user":"bert"}\n',
    ["anna", "bert", '"msg":"body"'],
    p=words_password("jsonl"),
)
add(
    "json-lines",
    "message",
    '{"level":"debug","msg":"connecting with password=§p§ to db1","n":4}\n',
    ["connecting with password=", "to db1", '"n":4'],
    p=plain_password("jsonl/msg"),
)
add(
    "python-log",
    "dict",
    "2025-03-01 12:00:00,123 DEBUG app.auth: payload={'user': 'anna', 'password': '§p§'}\n",
    ["DEBUG app.auth", "'user': 'anna'"],
    p=words_password("pylog"),
)
add(
    "python-log",
    "repr",
    "INFO:app:Settings(host='db1', password='§p§', port=5432)\n",
    ["host='db1'", "port=5432"],
    p=words_password("repr"),
)
add(
    "python-log",
    "traceback-locals",
    '  File "app.py", line 7, in connect\n    conn = db(user="app", password="§p§")\n'
    "OperationalError: timeout\n",
    ['File "app.py", line 7', "OperationalError: timeout"],
    p=words_password("traceback"),
)
add(
    "python-log",
    "failed-login",
    "WARNING auth: invalid password '§p§' for user anna\n",
    ["for user anna"],
    p=short_password("failed"),
)
add(
    "access-log",
    "query-token",
    '192.0.2.7 - - [01/Mar/2025:12:00:00 +0000] "GET /dl?file=a.zip&access_token=§t§ HTTP/1.1" '
    '200 512 "-" "curl/8.5.0"\n',
    ["192.0.2.7", "file=a.zip", '200 512 "-" "curl/8.5.0"'],
    t=alnum("nginx", 40),
)
add(
    "access-log",
    "reset-link",
    '192.0.2.8 - - [01/Mar/2025:12:00:01 +0000] "GET /reset?token=§t§ HTTP/2.0" 302 0\n',
    ["192.0.2.8", "GET /reset", "302 0"],
    t=base64url("reset", 43),
)
add(
    "access-log",
    "api-key-parameter",
    "GET https://maps.example.com/geo?address=Bern&key=§k§&lang=de -> 200\n",
    ["address=Bern", "lang=de", "-> 200"],
    k="AIza" + base64url("maps", 35),
)
add(
    "access-log",
    "oauth-callback",
    "GET /callback?code=§c§&state=§s§ 302\n",
    ["GET /callback", "302"],
    {"s": hexes("state", 16)},
    c="4/0A" + base64url("callback", 70),
)
add(
    "access-log",
    "fragment",
    "https://app.example.com/#access_token=§t§&token_type=bearer&expires_in=3600\n",
    ["https://app.example.com/", "expires_in=3600"],
    t=base64url("fragment", 60),
)
add(
    "access-log",
    "magic-link",
    "Sign in: https://app.example.com/auth/verify?magic_token=§t§\n",
    ["https://app.example.com/auth/verify"],
    t=uuid("magic") + digits("magic", 6),
)
