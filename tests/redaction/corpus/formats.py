"""Secrets in the files and payloads of known formats."""

from __future__ import annotations

import json

from tests.redaction.corpus.make import (
    Cases,
    alnum,
    base64std,
    base64url,
    basic,
    encoded,
    hexes,
    plain_password,
    short_password,
    upper,
    uuid,
    words_password,
)

CASES = Cases()
add = CASES.add

REGISTRY = "upload.py" + "pi" + ".org"  # written so, for no file names a package index

# --- dotenv --------------------------------------------------------------------------------------

add(
    "dotenv",
    "laravel",
    """
    APP_NAME=Orchard
    APP_ENV=production
    APP_KEY=base64:§k§
    DB_HOST=10.0.3.7
    DB_DATABASE=orchard
    DB_USERNAME=orchard_rw
    DB_PASSWORD=§p§
    MAIL_PASSWORD="§m§"
    """,
    ["APP_NAME=Orchard", "DB_HOST=10.0.3.7", "orchard_rw", "MAIL_PASSWORD"],
    k=base64std("laravel", 32),
    p=plain_password("laravel"),
    m=words_password("laravel/mail"),
)
add(
    "dotenv",
    "django",
    """
    DEBUG=0
    SECRET_KEY='§k§'
    DATABASE_URL=postgres://shop:§p§@db:5432/shop
    ALLOWED_HOSTS=shop.example.com
    """,
    ["DEBUG=0", "postgres://shop:", "@db:5432/shop", "shop.example.com"],
    k=alnum("django", 38) + "*(^" + alnum("django2", 8),
    p=plain_password("django"),
)
add(
    "dotenv",
    "export-and-comment",
    """
    # tokens of the staging cluster
    export STAGING_TOKEN=§t§ # expires in June
    export STAGING_USER=robot
    """,
    ["# tokens of the staging cluster", "expires in June", "STAGING_USER=robot"],
    t=alnum("staging", 28),
)
add(
    "dotenv",
    "commented-out",
    "# OLD_DB_PASSWORD=§p§\nDB_HOST=db.internal\n",
    ["OLD_DB_PASSWORD", "DB_HOST=db.internal"],
    p=words_password("old"),
)
add(
    "dotenv",
    "multi-line-value",
    'SIGNING_KEY="-----BEGIN PRIVATE KEY-----\\n§k§\\n-----END PRIVATE KEY-----\\n"\nPORT=8080\n',
    ["SIGNING_KEY", "PORT=8080"],
    k=base64std("one-line-pem", 120),
)
add(
    "dotenv",
    "short",
    "REDIS_PASSWORD=§p§\nREDIS_DB=3\n",
    ["REDIS_PASSWORD", "REDIS_DB=3"],
    p=short_password("redis"),
)

# --- YAML ----------------------------------------------------------------------------------------

add(
    "yaml",
    "nested",
    """
    database:
      host: db1.example.net
      port: 5432
      credentials:
        username: reporting
        password: §p§
    """,
    ["db1.example.net", "username: reporting"],
    p=words_password("yaml", "!.-+"),
)
add(
    "yaml",
    "block-scalar",
    """
    tls:
      cert: /etc/tls/tls.crt
      passphrase: |
        §p§
      mode: strict
    """,
    ["/etc/tls/tls.crt", "mode: strict"],
    p=plain_password("block"),
)
add(
    "yaml",
    "folded-scalar",
    "api_token: >-\n  §t§\nretries: 3\n",
    ["api_token", "retries: 3"],
    t=alnum("folded", 44),
)
add(
    "yaml",
    "flow-mapping",
    "smtp: {host: mail.example.org, user: bot, password: '§p§', port: 587}\n",
    ["mail.example.org", "user: bot", "port: 587"],
    p=words_password("flow"),
)
add(
    "yaml",
    "list-of-secrets",
    "api_keys:\n  - §a§\n  - §b§\nregion: eu-north-1\n",
    ["api_keys", "eu-north-1"],
    a=hexes("list/a", 32),
    b=hexes("list/b", 32),
)
add(
    "yaml",
    "ansible-vars",
    """
    - hosts: web
      become: true
      vars:
        ansible_user: deploy
        ansible_become_pass: "§p§"
    """,
    ["hosts: web", "ansible_user: deploy"],
    p=words_password("ansible"),
)
add(
    "yaml-name-value",
    "container-env",
    """
    env:
      - name: LOG_LEVEL
        value: debug
      - name: DB_PASSWORD
        value: "§p§"
      - name: CACHE_HOST
        value: cache-0.cache
    """,
    ["value: debug", "DB_PASSWORD", "cache-0.cache"],
    p=words_password("container"),
)
add(
    "yaml-name-value",
    "value-first",
    "env:\n- value: §t§\n  name: GITLAB_TOKEN\n- value: info\n  name: LOG_LEVEL\n",
    ["GITLAB_TOKEN", "value: info"],
    t=alnum("value-first", 26),
)
add(
    "yaml-name-value",
    "compose-list",
    """
    services:
      db:
        image: postgres:16
        environment:
          - POSTGRES_USER=app
          - POSTGRES_PASSWORD=§p§
        ports: ["5432:5432"]
    """,
    ["postgres:16", "POSTGRES_USER=app", "5432:5432"],
    p=plain_password("compose"),
)
add(
    "yaml-name-value",
    "key-value-words",
    "settings:\n  - key: smtp.password\n    value: §p§\n  - key: smtp.port\n    value: 587\n",
    ["smtp.password", "value: 587"],
    p=plain_password("settings"),
)
add(
    "yaml-name-value",
    "json-environment",
    '{"environment": [{"name": "STAGE", "value": "prod"}, {"name": "API_SECRET", "value": "§s§"}]}',
    ['"prod"', "API_SECRET"],
    s=alnum("ecs", 36),
)

# --- Kubernetes ----------------------------------------------------------------------------------

add(
    "kubernetes",
    "data",
    """
    apiVersion: v1
    kind: Secret
    metadata:
      name: shop-db
      namespace: prod
    type: Opaque
    data:
      username: §u§
      password: §p§
    """,
    ["kind: Secret", "name: shop-db", "namespace: prod", "type: Opaque"],
    p=encoded(words_password("k8s")),
    u=encoded("shop_admin_rw"),
)
add(
    "kubernetes",
    "string-data",
    """
    apiVersion: v1
    kind: Secret
    metadata:
      name: mailer
    stringData:
      config.ini: §p§
      relay: §q§
    """,
    ["kind: Secret", "name: mailer", "config.ini"],
    p=plain_password("k8s/string"),
    q=alnum("k8s/relay", 30),
)
add(
    "kubernetes",
    "json",
    json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "tls-edge", "namespace": "ingress"},
            "type": "kubernetes.io/tls",
            "data": {"tls.key": "§k§"},
        },
        indent=2,
        ensure_ascii=False,
    ),
    ['"Secret"', "tls-edge", "ingress", "kubernetes.io/tls"],
    k=encoded("-----BEGIN PRIVATE KEY-----\n" + base64std("k8s/tls", 48)),
)
add(
    "kubernetes",
    "dockerconfigjson",
    """
    kind: Secret
    apiVersion: v1
    type: kubernetes.io/dockerconfigjson
    data:
      .dockerconfigjson: §d§
    metadata:
      name: pull
    """,
    ["kubernetes.io/dockerconfigjson", ".dockerconfigjson", "name: pull"],
    d=encoded(json.dumps({"auths": {"r.example": {"auth": basic("ci", alnum("dcj", 20))}}})),
)
add(
    "kubernetes",
    "one-line-json",
    '{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s3"},'
    '"stringData":{"id":"§i§","key":"§k§"}}',
    ['"kind":"Secret"', '"name":"s3"'],
    i="AKIA" + upper("k8s/s3", 16),
    k=base64std("k8s/s3", 30),
)
add(
    "kubernetes",
    "kubeconfig",
    """
    apiVersion: v1
    kind: Config
    clusters:
    - cluster:
        server: https://10.1.0.1:6443
      name: lab
    users:
    - name: lab-admin
      user:
        client-key-data: §k§
        token: §t§
    """,
    ["https://10.1.0.1:6443", "lab-admin"],
    k=base64std("kubeconfig", 180),
    t=alnum("kubeconfig", 40),
)

# --- Docker, npm, PyPI, netrc --------------------------------------------------------------------

add(
    "docker-config",
    "auth",
    '{"auths": {"registry.example.com": {"auth": "§a§"}}, "credsStore": "desktop"}',
    ["registry.example.com", "desktop"],
    a=basic("ci-robot", words_password("docker")),
)
add(
    "docker-config",
    "identitytoken",
    """
    {
      "auths": {
        "acr.example.io": {
          "auth": "§a§",
          "identitytoken": "§t§"
        }
      }
    }
    """,
    ["acr.example.io", "identitytoken"],
    {"a": basic("00000000-0000-0000-0000-000000000000", "")},
    t=base64url("identity", 120),
)
add(
    "docker-config",
    "user-and-password",
    '{"auths":{"ghcr.example":{"username":"ci","password":"§p§","email":"ci@example.com"}}}',
    ['"username":"ci"', "ci@example.com"],
    p=alnum("docker/pass", 24),
)
add(
    "npmrc",
    "auth-token",
    "registry=https://npm.example.com/\n//npm.example.com/:_authToken=§t§\nalways-auth=true\n",
    ["registry=https://npm.example.com/", "_authToken", "always-auth=true"],
    t=uuid("npmrc"),
)
add(
    "npmrc",
    "auth",
    "_auth=§a§\nemail=dev@example.com\n",
    ["_auth", "email=dev@example.com"],
    a=basic("dev", plain_password("npmrc")),
)
add(
    "npmrc",
    "scoped-password",
    "//nexus.example.com/npm/:username=dev\n//nexus.example.com/npm/:_password=§p§\n",
    ["username=dev", "_password"],
    p=encoded(words_password("npmrc/scoped")),
)
add(
    "npmrc",
    "yarnrc",
    'npmRegistryServer: "https://npm.example.com"\nnpmAuthToken: "§t§"\n',
    ["https://npm.example.com", "npmAuthToken"],
    t=hexes("yarnrc", 40),
)
add(
    "pypirc",
    "password",
    """
    [distutils]
    index-servers = internal

    [internal]
    repository = https://§host§/legacy/
    username = maintainer
    password = §p§
    """,
    ["index-servers = internal", "username = maintainer", "/legacy/"],
    {"host": REGISTRY},
    p=words_password("pypirc"),
)
add(
    "pypirc",
    "token",
    "[nexus]\nusername = __token__\npassword = pypi-§t§\n",
    ["[nexus]", "__token__"],
    t="AgEIcHlwaS5vcmc" + base64url("pypirc", 150),
)
add(
    "pypirc",
    "pip-conf",
    "[global]\nindex = https://reader:§p§@packages.example.com/simple\ntimeout = 20\n",
    ["https://reader:", "packages.example.com/simple", "timeout = 20"],
    p=plain_password("pip-conf"),
)
add(
    "netrc",
    "one-line",
    "machine api.example.com login anna password §p§\n",
    ["machine api.example.com", "login anna"],
    p=words_password("netrc"),
)
add(
    "netrc",
    "lines",
    """
    machine git.example.org
      login build
      password §p§
    machine ftp.example.org
      login anonymous
      account guests
    """,
    ["git.example.org", "login build", "ftp.example.org", "login anonymous"],
    p=alnum("netrc", 20),
)
add(
    "netrc",
    "default-entry",
    "default login backup password §p§\n",
    ["default login backup"],
    p=short_password("netrc"),
)
add(
    "netrc",
    "pgpass",
    "# ~/.pgpass\ndb.example.com:5432:shop:shop_rw:§p§\n",
    ["db.example.com:5432:shop:shop_rw"],
    p=plain_password("pgpass"),
)

# --- INI, TOML, properties, plist, XML -----------------------------------------------------------

add(
    "ini",
    "my-cnf",
    "[client]\nuser = backup\npassword = §p§\nhost = 127.0.0.1\n",
    ["[client]", "user = backup", "127.0.0.1"],
    p=words_password("my.cnf", "!.-+"),
)
add(
    "ini",
    "aws-credentials",
    """
    [default]
    aws_access_key_id = §i§
    aws_secret_access_key = §s§
    region = eu-central-1
    """,
    ["[default]", "aws_secret_access_key", "eu-central-1"],
    {"i": "AKIA" + upper("ini", 16)},
    s=alnum("ini/aws", 22) + "/" + alnum("ini/aws2", 17),
)
add(
    "ini",
    "odoo",
    "[options]\nadmin_passwd = §a§\ndb_user = odoo\ndb_password = §p§\n",
    ["[options]", "db_user = odoo"],
    a=short_password("odoo"),
    p=plain_password("odoo"),
)
add(
    "ini",
    "wireguard",
    """
    [Interface]
    Address = 10.8.0.2/24
    PrivateKey = §k§

    [Peer]
    PublicKey = §u§
    PresharedKey = §s§
    AllowedIPs = 0.0.0.0/0
    """,
    ["10.8.0.2/24", "AllowedIPs = 0.0.0.0/0"],
    {"u": base64std("wg/public", 32)},
    k=base64std("wg/private", 32),
    s=base64std("wg/shared", 32),
)
add(
    "ini",
    "networkmanager",
    "[wifi-security]\nkey-mgmt=wpa-psk\npsk=§p§\n",
    ["key-mgmt=wpa-psk"],
    p=words_password("psk"),
)
add(
    "toml",
    "table",
    """
    [storage]
    endpoint = "https://s3.example.com"
    bucket = "backups"
    secret_access_key = "§s§"
    """,
    ["https://s3.example.com", '"backups"'],
    s=base64std("toml", 30),
)
add(
    "toml",
    "inline-table",
    'mail = { host = "mx.example.com", user = "bot", password = \'§p§\' }\n',
    ["mx.example.com", '"bot"'],
    p=words_password("toml/inline"),
)
add(
    "toml",
    "dotted-and-literal",
    "auth.token = '''§t§'''\nauth.enabled = true\n",
    ["auth.enabled = true"],
    t=alnum("toml/dotted", 36),
)
add(
    "toml",
    "cargo-credentials",
    '[registries.internal]\ntoken = "§t§"\n',
    ["[registries.internal]"],
    t=alnum("cargo", 32),
)
add(
    "properties",
    "spring",
    """
    spring.datasource.url=jdbc:postgresql://db:5432/app
    spring.datasource.username=app
    spring.datasource.password=§p§
    server.ssl.key-store-password: §k§
    """,
    ["jdbc:postgresql://db:5432/app", "username=app", "server.ssl.key-store-password"],
    p=words_password("spring", "!.-+"),
    k=short_password("spring"),
)
add(
    "properties",
    "gradle",
    "org.gradle.caching=true\nsigning.keyId=24875D73\nsigning.password=§p§\n",
    ["org.gradle.caching=true", "signing.password"],
    p=plain_password("gradle"),
)
add(
    "properties",
    "continued-line",
    "broker.sasl.jaas.config=org.apache.kafka.PlainLoginModule required \\\n"
    '    username="ingest" \\\n    password="§p§";\n',
    ["PlainLoginModule", 'username="ingest"'],
    p=words_password("jaas"),
)
add(
    "plist",
    "key-and-string",
    """
    <dict>
        <key>Server</key>
        <string>imap.example.com</string>
        <key>IncomingPassword</key>
        <string>§p§</string>
    </dict>
    """,
    ["imap.example.com", "<key>IncomingPassword</key>"],
    p=plain_password("plist"),
)
add(
    "plist",
    "data",
    "<key>APIToken</key>\n<data>\n§t§\n</data>\n<key>Rounds</key><integer>3</integer>\n",
    ["<key>APIToken</key>", "<integer>3</integer>"],
    t=base64std("plist", 36),
)
add(
    "xml-attribute",
    "tomcat-user",
    '<user username="tomcat" password="§p§" roles="manager-gui"/>\n',
    ['username="tomcat"', 'roles="manager-gui"'],
    p=words_password("tomcat", "!.-+"),
)
add(
    "xml-attribute",
    "add-key-value",
    "<appSettings>\n  <add key=\"SmtpPassword\" value='§p§' />\n"
    '  <add key="SmtpPort" value="25" />\n</appSettings>\n',
    ["SmtpPassword", 'value="25"'],
    p=words_password("appsettings", "!.-+"),
)
add(
    "xml-attribute",
    "single-quotes-and-order",
    "<datasource pwd='§p§' jndi='java:/shop' user='shop'/>\n",
    ["java:/shop", "user='shop'"],
    p=short_password("datasource"),
)
add(
    "xml-attribute",
    "property-name",
    '<property name="hibernate.connection.password" value="§p§"/>\n'
    '<property name="hibernate.show_sql" value="true"/>\n',
    ["hibernate.connection.password", 'value="true"'],
    p=plain_password("hibernate"),
)
add(
    "xml-element",
    "maven-settings",
    """
    <server>
      <id>nexus</id>
      <username>deployer</username>
      <password>§p§</password>
    </server>
    """,
    ["<id>nexus</id>", "<username>deployer</username>"],
    p=words_password("maven", "!.-+"),
)
add(
    "xml-element",
    "namespaced",
    '<wsse:Username>svc</wsse:Username><wsse:Password Type="wsse:PasswordText">§p§'
    "</wsse:Password>\n",
    ["<wsse:Username>svc", "PasswordText"],
    p=plain_password("wsse"),
)
add(
    "xml-element",
    "cdata",
    "<credentials><login>svc</login><password><![CDATA[§p§]]></password></credentials>\n",
    ["<login>svc</login>"],
    p="<" + words_password("cdata") + "&9",
)
add(
    "xml-element",
    "named-element",
    "<Setting><Name>ApiSecret</Name><Value>§s§</Value></Setting>\n",
    ["<Name>ApiSecret</Name>"],
    s=alnum("named", 32),
)
add(
    "xml-element",
    "own-line",
    "<apiKey>\n    §k§\n</apiKey>\n<timeout>30</timeout>\n",
    ["<timeout>30</timeout>"],
    k=hexes("own-line", 40),
)
add(
    "xml-element",
    "jenkins-credentials",
    "<username>jenkins</username>\n<password>{§p§}</password>\n<usernameSecret>false"
    "</usernameSecret>\n",
    ["<username>jenkins", "false"],
    p="AQAAABAAAAAQ" + base64std("jenkins", 30),
)

# --- Terraform -----------------------------------------------------------------------------------

add(
    "terraform",
    "tfvars",
    """
    region      = "eu-west-1"
    db_username = "app"
    db_password = "§p§"
    """,
    ['"eu-west-1"', '"app"'],
    p=words_password("tfvars"),
)
add(
    "terraform",
    "state",
    """
    {
      "version": 4,
      "resources": [{
        "type": "aws_db_instance",
        "name": "main",
        "instances": [{"attributes": {
          "address": "main.abc.eu-west-1.rds.example.com",
          "password": "§p§",
          "username": "root"
        }}]
      }]
    }
    """,
    ["aws_db_instance", "main.abc.eu-west-1.rds.example.com", '"root"'],
    p=words_password("tfstate"),
)
add(
    "terraform",
    "random-password",
    '{"type":"random_password","name":"db","instances":[{"attributes":'
    '{"id":"none","length":20,"result":"§p§","special":true}}]}',
    ["random_password", '"length":20'],
    p=alnum("random_password", 20),
)
add(
    "terraform",
    "outputs",
    """
    $ terraform output -json
    {
      "db_password": {
        "sensitive": true,
        "type": "string",
        "value": "§p§"
      }
    }
    """,
    ["terraform output -json", '"type": "string"'],
    p=words_password("outputs"),
)
add(
    "terraform",
    "variable-default",
    """
    variable "admin_password" {
      type    = string
      default = "§p§"
    }
    """,
    ["admin_password", "type    = string"],
    p=words_password("variable"),
)
add(
    "terraform",
    "plan",
    """
      # aws_db_instance.main will be updated in-place
      ~ resource "aws_db_instance" "main" {
          ~ password = "§a§" -> "§b§"
            username = "root"
        }
    """,
    ["will be updated in-place", '"root"'],
    a=words_password("plan/a"),
    b=words_password("plan/b"),
)

# --- JSON Patch, JWK, JSON -----------------------------------------------------------------------

add(
    "json-patch",
    "replace",
    '[{"op": "replace", "path": "/users/7/password", "value": "§p§"}]',
    ["replace", "/users/7/password"],
    p=words_password("patch"),
)
add(
    "json-patch",
    "value-first",
    '[{"value":"§t§","op":"add","path":"/spec/token"},{"op":"test","path":"/a","value":"kept"}]',
    ["/spec/token", "kept"],
    t=alnum("patch", 30),
)
add(
    "jwk",
    "rsa",
    """
    {
      "kty": "RSA",
      "kid": "2024-11",
      "n": "§n§",
      "e": "AQAB",
      "d": "§d§",
      "p": "§p§",
      "q": "§q§"
    }
    """,
    ['"RSA"', "2024-11", "AQAB"],
    {"n": base64url("jwk/n", 171)},
    d=base64url("jwk/d", 171),
    p=base64url("jwk/p", 86),
    q=base64url("jwk/q", 86),
)
add(
    "jwk",
    "elliptic",
    '{"kty":"EC","crv":"P-256","x":"§x§","y":"§y§","d":"§d§"}',
    ['"EC"', "P-256"],
    {"x": base64url("ec/x", 43), "y": base64url("ec/y", 43)},
    d=base64url("ec/d", 43),
)
add(
    "jwk",
    "symmetric",
    '{"keys":[{"kty":"oct","kid":"hs","alg":"HS256","k":"§k§"}]}',
    ['"oct"', '"HS256"'],
    k=base64url("oct", 43),
)
add(
    "json",
    "nested",
    """
    {
      "service": "billing",
      "upstream": {
        "url": "https://bank.example.com/v2",
        "credentials": {"client_id": "billing-prod", "client_secret": "§s§"}
      }
    }
    """,
    ["https://bank.example.com/v2", "billing-prod"],
    s=alnum("json/nested", 40),
)
add(
    "json",
    "token-response",
    '{"access_token":"§a§","token_type":"Bearer","expires_in":3600,"refresh_token":"§r§"}',
    ["Bearer", "3600"],
    a=base64url("at", 64),
    r=base64url("rt", 48),
)
add(
    "json",
    "array-under-name",
    '{"passwords": ["§a§", "§b§"], "count": 2}',
    ['"count": 2'],
    a=words_password("arr/a"),
    b=short_password("arr/b"),
)
add(
    "json",
    "trailing-comma-and-comment",
    '{\n  // local only\n  "sqlPassword": "§p§",\n  "port": 1433,\n}\n',
    ["// local only", "1433"],
    p=words_password("jsonc"),
)
add(
    "json",
    "python-dict",
    "{'host': 'db', 'user': 'app', 'password': '§p§', 'port': 5432}",
    ["'host': 'db'", "5432"],
    p=words_password("dict"),
)
add(
    "json",
    "cut-off",
    '{"user": "anna", "api_token": "§t§',
    ["anna"],
    t=alnum("cut", 34),
)
add(
    "json",
    "user-and-pass-object",
    '{"auth": {"user": "anna", "pass": "§p§"}}',
    ["anna"],
    p=short_password("pass-object"),
)

# --- tables --------------------------------------------------------------------------------------

add(
    "csv",
    "password-column",
    "name,email,password,role\nAnna,anna@example.com,§a§,admin\nBert,bert@example.com,§b§,user\n",
    ["name,email,password,role", "anna@example.com", "admin", "Bert"],
    a=words_password("csv/a"),
    b=short_password("csv/b"),
)
add(
    "csv",
    "quoted",
    '"host","login","secret"\n"srv1","root","§a§"\n"srv2","root","§b§"\n',
    ['"srv1"', '"srv2"', '"root"'],
    a=words_password("csvq/a") + ",5",
    b=words_password("csvq/b"),
)
add(
    "csv",
    "semicolons",
    "System;Benutzer;Passwort\nERP;meier;§a§\nCRM;meier;§b§\n",
    ["ERP;meier", "CRM;meier"],
    a=plain_password("csvs/a"),
    b=plain_password("csvs/b"),
)
add(
    "csv",
    "aws-console",
    "User name,Access key ID,Secret access key\ndeployer,§i§,§s§\n",
    ["User name,Access key ID,Secret access key", "deployer"],
    {"i": "AKIA" + upper("csv", 16)},
    s=base64std("csv/aws", 30),
)
add(
    "csv",
    "browser-export",
    "url,username,password,httpRealm,formActionOrigin\n"
    "https://forum.example.org,anna,§p§,,https://forum.example.org\n",
    ["https://forum.example.org", "anna"],
    p=short_password("browser"),
)
add(
    "tsv",
    "token-column",
    "id\tname\tapi_token\n1\tbuild\t§a§\n2\trelease\t§b§\n",
    ["1\tbuild", "2\trelease"],
    a=alnum("tsv/a", 24),
    b=alnum("tsv/b", 24),
)
add(
    "tsv",
    "mysql-batch",
    "user\thost\tpassword\nroot\tlocalhost\t§a§\napp\t%\t§b§\n",
    ["root\tlocalhost", "app\t%"],
    a=plain_password("tsvm/a"),
    b=short_password("tsvm/b"),
)
add(
    "markdown-table",
    "logins",
    """
    | System  | User   | Password |
    |---------|--------|----------|
    | Wiki    | editor | §a§ |
    | Jenkins | admin  | `§b§` |
    """,
    ["| System  | User   | Password |", "editor", "Jenkins"],
    a=plain_password("md/a"),
    b=words_password("md/b"),
)
add(
    "markdown-table",
    "name-rows",
    "| Setting | Value |\n|---|---|\n| Host | ftp.example.com |\n| Password | §p§ |\n",
    ["ftp.example.com", "| Password |"],
    p=short_password("md/rows"),
)
add(
    "markdown-table",
    "no-outer-bars",
    "Service | API key | Owner\n--- | --- | ---\nmaps | §k§ | geo team\n",
    ["maps", "geo team"],
    k=alnum("md/bars", 32),
)
add(
    "psql-table",
    "aligned",
    " id | username |     password     \n----+----------+------------------\n"
    "  1 | anna     | §a§\n  2 | bert     | §b§\n(2 rows)\n",
    ["username", "anna", "bert", "(2 rows)"],
    a=plain_password("psql/a"),
    b=plain_password("psql/b"),
)
add(
    "psql-table",
    "expanded",
    "-[ RECORD 1 ]---\nid       | 1\nusername | anna\napi_key  | §k§\n",
    ["RECORD 1", "anna"],
    k=hexes("psql/x", 40),
)
add(
    "mysql-table",
    "boxed",
    "+----+-------+----------------------+\n| id | name  | secret               |\n"
    "+----+-------+----------------------+\n|  1 | stage | §a§ |\n|  2 | prod  | §b§ |\n"
    "+----+-------+----------------------+\n2 rows in set (0.00 sec)\n",
    ["stage", "prod", "2 rows in set (0.00 sec)"],
    a=alnum("mysql/a", 20),
    b=alnum("mysql/b", 20),
)
add(
    "mysql-table",
    "vertical",
    "*************************** 1. row ***************************\n"
    "      user: shop\n  password: §p§\n      host: %\n",
    ["user: shop", "1. row"],
    p=words_password("vertical", "!.-+"),
)
add(
    "mysql-table",
    "box-drawing",
    "┌──────┬──────────────┐\n│ user │ password     │\n├──────┼──────────────┤\n"
    "│ anna │ §p§ │\n└──────┴──────────────┘\n",
    ["anna"],
    p=plain_password("box"),
)

# --- SQL -----------------------------------------------------------------------------------------

add(
    "sql",
    "insert",
    "INSERT INTO users (id, email, password) VALUES (7, 'anna@example.com', '§p§');\n",
    ["INSERT INTO users", "anna@example.com"],
    p=words_password("insert"),
)
add(
    "sql",
    "insert-rows",
    "INSERT INTO api_clients (name, api_key, active) VALUES\n  ('web', '§a§', true),\n"
    "  ('app', '§b§', false);\n",
    ["'web'", "'app'", "active"],
    a=hexes("ins/a", 32),
    b=hexes("ins/b", 32),
)
add(
    "sql",
    "create-login",
    "CREATE LOGIN reporting WITH PASSWORD = N'§p§', CHECK_POLICY = OFF;\n",
    ["CREATE LOGIN reporting", "CHECK_POLICY = OFF"],
    p=words_password("login"),
)
add(
    "sql",
    "create-role",
    "CREATE ROLE etl LOGIN PASSWORD '§p§' VALID UNTIL '2030-01-01';\n",
    ["CREATE ROLE etl LOGIN", "VALID UNTIL '2030-01-01'"],
    p=words_password("role"),
)
add(
    "sql",
    "alter-user",
    "ALTER USER 'shop'@'%' IDENTIFIED BY '§p§';\nFLUSH PRIVILEGES;\n",
    ["ALTER USER 'shop'@'%'", "FLUSH PRIVILEGES"],
    p=words_password("alter"),
)
add(
    "sql",
    "oracle-unquoted",
    "CREATE USER hr IDENTIFIED BY §p§ DEFAULT TABLESPACE users;\n",
    ["CREATE USER hr IDENTIFIED BY", "DEFAULT TABLESPACE users"],
    p=plain_password("oracle").replace("-", "_"),
)
add(
    "sql",
    "update",
    "UPDATE accounts SET password = '§p§', updated_at = now() WHERE login = 'bert';\n",
    ["UPDATE accounts SET", "login = 'bert'"],
    p=short_password("update"),
)
add(
    "sql",
    "set-password",
    "SET PASSWORD FOR 'root'@'localhost' = PASSWORD('§p§');\n",
    ["'root'@'localhost'"],
    p=words_password("set"),
)
add(
    "sql",
    "pgcrypto",
    "SELECT crypt('§p§', gen_salt('bf')) AS password;\n",
    ["gen_salt('bf')"],
    p=words_password("crypt"),
)
add(
    "sql",
    "doubled-quote",
    "ALTER ROLE etl WITH PASSWORD '§p§';\n",
    ["ALTER ROLE etl"],
    p="it''s-" + plain_password("doubled"),
)
add(
    "sql",
    "where-clause",
    "SELECT id FROM users WHERE login='anna' AND password='§p§' LIMIT 1\n",
    ["login='anna'", "LIMIT 1"],
    p=short_password("where"),
)

# --- forms ---------------------------------------------------------------------------------------

add(
    "multipart",
    "password-part",
    "------b7f3\r\n"
    'Content-Disposition: form-data; name="username"\r\n\r\nanna\r\n'
    "------b7f3\r\n"
    'Content-Disposition: form-data; name="password"\r\n\r\n§p§\r\n'
    "------b7f3--\r\n",
    ['name="username"', "anna", 'name="password"'],
    p=words_password("multipart"),
)
add(
    "multipart",
    "typed-part",
    "--X\nContent-Disposition: form-data; name=api_token\nContent-Type: text/plain\n\n§t§\n"
    '--X\nContent-Disposition: form-data; name="comment"\n\nnightly run\n--X--\n',
    ["api_token", "nightly run"],
    t=alnum("multipart", 32),
)
add(
    "urlencoded",
    "login-form",
    "username=anna&password=§p§&remember=1",
    ["username=anna", "remember=1"],
    p=plain_password("form"),
)
add(
    "urlencoded",
    "token-request",
    "grant_type=client_credentials&client_id=shop&client_secret=§s§&scope=read",
    ["grant_type=client_credentials", "client_id=shop", "scope=read"],
    s=alnum("form/secret", 40),
)
add(
    "urlencoded",
    "password-grant",
    "grant_type=password&username=bert%40example.com&password=§p§&client_id=app",
    ["grant_type=password", "bert%40example.com", "client_id=app"],
    p=words_password("grant", "!").replace("!", "%21"),
)
add(
    "urlencoded",
    "brackets",
    "user%5Blogin%5D=anna&user%5Bpassword%5D=§p§&commit=Log+in",
    ["user%5Blogin%5D=anna", "commit=Log+in"],
    p=plain_password("rails"),
)

# --- hashes of passwords -------------------------------------------------------------------------

add(
    "password-hash",
    "shadow",
    "root:$6$§s§$§h§:19800:0:99999:7:::\nbin:*:19700:0:99999:7:::\n",
    ["root:", "bin:*:19700"],
    {"s": alnum("shadow/salt", 8)},
    h=alnum("shadow", 60) + "./" + alnum("shadow2", 24),
)
add(
    "password-hash",
    "htpasswd-file",
    "anna:$apr1$§s§$§h§\n",
    ["anna:"],
    {"s": alnum("apr/salt", 8)},
    h=alnum("apr", 22),
)
