"""Tokens and keys in the formats that their vendors document. A format that can be told by itself
stands where nothing before it says what it is; the others stand behind the name that they have in
the vendor's own documentation."""

from __future__ import annotations

import json

from tests.redaction.corpus.make import (
    ALNUM,
    Cases,
    alnum,
    base64std,
    base64url,
    checked,
    digits,
    drawn,
    encoded,
    hexes,
    jwt,
    lower,
    packed,
    pem,
    upper,
    uuid,
)

CASES = Cases()
add = CASES.add

# A text in which a token stands, and what must be left of it.
SETTINGS = (
    ("I pasted §t§ into the chat by mistake.", "into the chat by mistake."),
    ("curl failed with §t§ (401)", "curl failed with"),
    ("value: §t§", "value"),
    ("- `§t§`\n- done", "- done"),
    ('["§t§", "eu"]', '"eu"'),
    ("see §t§, please revoke it", "please revoke it"),
    ("x = '§t§'", "x = "),
    ("argument 2 is §t§", "argument 2 is"),
)

NUMBERS = f"{digits('sl1', 12)}-{digits('sl2', 12)}"
ORG = packed({"iat": 1700000000.5, "url": "https://sentry.example", "org": "acme"})

# Vendor, kind, and a token that its format alone gives away.
BARE: tuple[tuple[str, str, str], ...] = (
    *(
        ("github", kind.rstrip("_"), checked(kind, f"github/{kind}"))
        for kind in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")
    ),
    ("github", "fine-grained", f"github_pat_{alnum('fg', 22)}_{alnum('fg2', 59)}"),
    *(
        ("gitlab", kind, f"{kind}-{base64url(kind, 20)}")
        for kind in (
            "glpat",
            "gldt",
            "glft",
            "glsoat",
            "glrt",
            "glptt",
            "glagent",
            "gloas",
            "glcbt",
        )
    ),
    ("gitlab", "runner-registration", "GR1348941" + base64url("runner", 20)),
    (
        "gitlab",
        "routable",
        f"glpat-{base64url('routable', 27)}.01.{lower('routable', 9)}",
    ),
    ("slack", "bot", f"xoxb-{NUMBERS}-{alnum('xoxb', 24)}"),
    ("slack", "user", f"xoxp-{NUMBERS}-{digits('sl3', 12)}-{hexes('xoxp', 32)}"),
    ("slack", "app", f"xapp-1-A{upper('xapp', 10)}-{digits('sl4', 13)}-{hexes('xapp', 64)}"),
    ("slack", "configuration", f"xoxe.xoxp-1-{base64url('xoxe', 160)}"),
    (
        "slack",
        "webhook",
        "https://hooks.slack.com/services/"
        f"T{upper('hook1', 10)}/B{upper('hook2', 10)}/{alnum('hook3', 24)}",
    ),
    ("stripe", "secret", f"sk_live_{alnum('sk', 24)}"),
    ("stripe", "secret-long", f"sk_live_51{alnum('sk51', 97)}"),
    ("stripe", "restricted", f"rk_live_{alnum('rk', 24)}"),
    ("stripe", "webhook", f"whsec_{alnum('whsec', 32)}"),
    ("stripe", "test", f"sk_test_{alnum('sktest', 24)}"),
    ("aws", "key-id", f"AKIA{upper('akia', 16)}"),
    ("aws", "mws", f"amzn.mws.{uuid('mws')}"),
    ("aws", "bedrock", "ABSK" + base64std("bedrock", 99)),
    ("google", "api-key", f"AIza{base64url('aiza', 35)}"),
    ("google", "oauth-secret", f"GOCSPX-{base64url('gocspx', 28)}"),
    ("google", "access-token", f"ya29.{base64url('ya29', 180)}"),
    ("google", "refresh-token", f"1//0{base64url('refresh', 98)}"),
    ("azure", "client-secret", f"{alnum('aad1', 3)}8Q~{base64url('aad', 34)}"),
    ("azure", "devops", drawn("azdo", ALNUM, 76) + "AZDO" + alnum("azdo2", 4)),
    ("ai", "openai", f"sk-{alnum('oa1', 20)}T3BlbkFJ{alnum('oa2', 20)}"),
    ("ai", "openai-project", f"sk-proj-{base64url('oap1', 74)}T3BlbkFJ{base64url('oap2', 74)}"),
    (
        "ai",
        "openai-service",
        f"sk-svcacct-{base64url('oas1', 58)}T3BlbkFJ{base64url('oas2', 58)}",
    ),
    ("ai", "anthropic", f"sk-ant-api03-{base64url('ant', 93)}AA"),
    ("ai", "anthropic-admin", f"sk-ant-admin01-{base64url('antadm', 93)}AA"),
    ("ai", "anthropic-oauth", f"sk-ant-oat01-{base64url('antoat', 93)}AA"),
    ("ai", "huggingface", f"hf_{drawn('hf', ALNUM[10:], 34)}"),
    ("ai", "groq", f"gsk_{alnum('groq', 52)}"),
    ("ai", "replicate", f"r8_{alnum('r8', 37)}"),
    ("ai", "perplexity", f"pplx-{alnum('pplx', 48)}"),
    ("ai", "xai", f"xai-{alnum('xai', 80)}"),
    ("ai", "openrouter", f"sk-or-v1-{hexes('or', 64)}"),
    ("ai", "langsmith", f"lsv2_pt_{hexes('ls', 32)}_{hexes('ls2', 10)}"),
    ("ai", "nvidia", f"nvapi-{base64url('nv', 64)}"),
    ("ai", "pinecone", f"pcsk_{alnum('pc', 6)}_{alnum('pc2', 62)}"),
    ("ai", "tavily", f"tvly-{alnum('tvly', 32)}"),
    ("registry", "npm", checked("npm_", "npm")),
    ("registry", "pypi", f"pypi-AgEIcHlwaS5vcmc{base64url('pypi', 160)}"),
    ("registry", "rubygems", f"rubygems_{hexes('gems', 48)}"),
    ("registry", "nuget", f"oy2{lower('nuget', 43)}"),
    ("registry", "docker-hub", f"dckr_pat_{base64url('dckr', 27)}"),
    ("registry", "clojars", f"CLOJARS_{lower('clojars', 60)}"),
    ("registry", "crates", f"cio{alnum('cio', 32)}"),
    ("registry", "artifactory", f"AKCp{alnum('akcp', 69)}"),
    ("mail", "sendgrid", f"SG.{base64url('sg1', 22)}.{base64url('sg2', 43)}"),
    ("mail", "mailgun", f"key-{hexes('mg', 32)}"),
    ("mail", "mailchimp", f"{hexes('mc', 32)}-us14"),
    ("mail", "brevo", f"xkeysib-{hexes('brevo', 64)}-{alnum('brevo', 16)}"),
    ("mail", "resend", f"re_{alnum('re', 8)}_{alnum('re2', 24)}"),
    ("mail", "twilio", f"SK{hexes('twilio', 32)}"),
    ("commerce", "shopify-access", f"shpat_{hexes('shpat', 32)}"),
    ("commerce", "shopify-secret", f"shpss_{hexes('shpss', 32)}"),
    ("commerce", "shopify-custom", f"shpca_{hexes('shpca', 32)}"),
    ("commerce", "square", f"sq0atp-{base64url('sq0', 22)}"),
    ("commerce", "square-secret", f"sq0csp-{base64url('sq0c', 43)}"),
    ("commerce", "square-new", f"EAAA{base64url('eaaa', 60)}"),
    ("commerce", "braintree", f"access_token$production${lower('bt', 16)}${hexes('bt', 32)}"),
    ("commerce", "plaid", f"access-production-{uuid('plaid')}"),
    ("commerce", "flutterwave", f"FLWSECK-{hexes('flw', 32)}-X"),
    ("commerce", "easypost", f"EZAK{hexes('ez', 32)}{alnum('ez', 22)}"),
    ("commerce", "shippo", f"shippo_live_{hexes('shippo', 40)}"),
    ("hosting", "digitalocean", f"dop_v1_{hexes('dop', 64)}"),
    ("hosting", "digitalocean-oauth", f"doo_v1_{hexes('doo', 64)}"),
    ("hosting", "heroku-new", f"HRKU-AA{base64url('hrku', 58)}"),
    ("hosting", "cloudflare", f"cfut_{alnum('cfut', 40)}{hexes('cfut', 8)}"),
    ("hosting", "cloudflare-origin", f"v1.0-{hexes('origin', 24)}-{hexes('origin2', 146)}"),
    ("hosting", "netlify", f"nfp_{alnum('nfp', 36)}"),
    ("hosting", "render", f"rnd_{alnum('rnd', 28)}"),
    ("hosting", "fly", f"FlyV1 fm2_{base64std('fly', 120)}"),
    ("hosting", "supabase", f"sbp_{hexes('sbp', 40)}"),
    ("hosting", "supabase-secret", f"sb_secret_{base64url('sb', 22)}_{alnum('sb', 8)}"),
    ("hosting", "tailscale", f"tskey-auth-{alnum('ts', 12)}CNTRL-{alnum('ts2', 32)}"),
    ("hosting", "alibaba", f"LTAI{alnum('ltai', 20)}"),
    ("monitoring", "new-relic", f"NRAK-{upper('nrak', 27)}"),
    ("monitoring", "new-relic-licence", f"{hexes('nral', 36)}NRAL"),
    ("monitoring", "sentry-user", f"sntryu_{hexes('sntryu', 64)}"),
    ("monitoring", "sentry-org", f"sntrys_{ORG}_{alnum('sntrys', 43)}"),
    ("monitoring", "grafana-service", f"glsa_{alnum('glsa', 32)}_{hexes('glsa', 8)}"),
    (
        "monitoring",
        "grafana-cloud",
        f"glc_{encoded(json.dumps({'o': '1', 'k': alnum('glc', 48)}))}",
    ),
    ("monitoring", "dynatrace", f"dt0c01.{upper('dt', 24)}.{upper('dt2', 64)}"),
    ("monitoring", "posthog", f"phx_{alnum('phx', 43)}"),
    ("monitoring", "honeycomb", f"hcaik_01{lower('hc', 56)}"),
    ("monitoring", "sonarqube", f"squ_{hexes('squ', 40)}"),
    ("data", "databricks", f"dapi{hexes('dapi', 32)}"),
    ("data", "planetscale", f"pscale_tkn_{base64url('ps', 43)}"),
    ("data", "planetscale-password", f"pscale_pw_{base64url('pspw', 43)}"),
    ("data", "airtable", f"pat{alnum('air', 14)}.{hexes('air', 64)}"),
    ("data", "prefect", f"pnu_{alnum('pnu', 36)}"),
    ("collaboration", "linear", f"lin_api_{alnum('lin', 40)}"),
    ("collaboration", "notion", f"ntn_{digits('ntn', 11)}{alnum('ntn', 35)}"),
    ("collaboration", "notion-old", f"secret_{alnum('notion', 43)}"),
    (
        "collaboration",
        "atlassian",
        f"ATATT3xFfGF0{base64url('atatt', 171)}={hexes('a', 8).upper()}",
    ),
    ("collaboration", "bitbucket-app", f"ATBB{alnum('atbb', 32)}"),
    ("collaboration", "figma", f"figd_{base64url('figd', 40)}"),
    ("collaboration", "contentful", f"CFPAT-{base64url('cfpat', 43)}"),
    ("collaboration", "dropbox", f"sl.{base64url('sl', 135)}"),
    ("collaboration", "postman", f"PMAK-{hexes('pmak', 24)}-{hexes('pmak2', 34)}"),
    ("collaboration", "typeform", f"tfp_{base64url('tfp', 59)}"),
    (
        "collaboration",
        "asana",
        f"2/{digits('as1', 16)}/{digits('as2', 16)}:{hexes('asana', 32)}",
    ),
    ("chat-vendor", "telegram", f"{digits('tg', 10)}:AA{base64url('tg', 33)}"),
    (
        "chat-vendor",
        "discord-bot",
        f"{encoded(digits('dc', 18)).rstrip('=')}.{base64url('dc2', 6)}.{base64url('dc3', 38)}",
    ),
    (
        "chat-vendor",
        "discord-webhook",
        f"https://discord.com/api/webhooks/{digits('dwh', 19)}/{base64url('dwh', 68)}",
    ),
    ("chat-vendor", "facebook", f"EAACEdEose0cBA{alnum('fb', 150)}"),
    (
        "chat-vendor",
        "teams-webhook",
        f"https://acme.webhook.office.com/webhookb2/{uuid('tw')}@{uuid('tw2')}"
        f"/IncomingWebhook/{hexes('tw', 32)}/{uuid('tw3')}",
    ),
    ("vault", "doppler", f"dp.st.prd.{alnum('dpst', 43)}"),
    ("vault", "doppler-personal", f"dp.pt.{alnum('dppt', 43)}"),
    ("vault", "hashicorp", f"hvs.{base64url('hvs', 92)}"),
    ("vault", "hashicorp-batch", f"hvb.{base64url('hvb', 140)}"),
    ("vault", "terraform-cloud", f"{alnum('tfc', 14)}.atlasv1.{base64url('tfc', 67)}"),
    ("vault", "pulumi", f"pul-{hexes('pul', 40)}"),
    (
        "vault",
        "onepassword-service",
        "ops_" + packed({"signInAddress": "my.1password.com", "secretKey": alnum("ops", 60)}),
    ),
    (
        "vault",
        "onepassword-secret-key",
        f"A3-{upper('op1', 6)}-{upper('op2', 6)}-"
        + "-".join(upper(f"op{n}", 5) for n in range(3, 7)),
    ),
    ("vault", "age", "AGE-SECRET-KEY-1" + drawn("age", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    ("ci", "buildkite", f"bkua_{hexes('bkua', 40)}"),
    ("ci", "circleci", f"CCIPAT_{alnum('cc1', 22)}_{hexes('cc2', 40)}"),
    ("ci", "sourcegraph", f"sgp_{hexes('sgp1', 16)}_{hexes('sgp2', 40)}"),
    ("ci", "launchdarkly", f"api-{uuid('ld')}"),
)

for number, (vendor, kind, token) in enumerate(BARE):
    setting, keep = SETTINGS[number % len(SETTINGS)]
    add(f"vendor-{vendor}", kind, setting + "\n", [keep], t=token)

# --- formats that say little: the name before them does ------------------------------------------

NAMED = {
    "datadog-api": ("DD_API_KEY=§t§", hexes("dd", 32)),
    "datadog-app": ("DD_APP_KEY: §t§", hexes("ddapp", 40)),
    "heroku-uuid": ("HEROKU_API_KEY=§t§", uuid("heroku")),
    "cloudflare-token": ("CLOUDFLARE_API_TOKEN=§t§", base64url("cf", 40)),
    "cloudflare-global": ("X-Auth-Email: anna@example.com\nX-Auth-Key: §t§", hexes("cfg", 37)),
    "vercel": ("VERCEL_TOKEN=§t§", alnum("vercel", 24)),
    "netlify-old": ("NETLIFY_AUTH_TOKEN=§t§", base64url("netlify", 43)),
    "twilio-auth": ("TWILIO_AUTH_TOKEN='§t§'", hexes("twa", 32)),
    "circleci-old": ("Circle-Token: §t§", hexes("circle", 40)),
    "travis": ("TRAVIS_TOKEN=§t§", alnum("travis", 22)),
    "okta": ("Authorization: SSWS §t§", "00" + base64url("okta", 40)),
    "pagerduty": ("Authorization: Token token=§t§", base64url("pd", 20)),
    "opsgenie": ("Authorization: GenieKey §t§", uuid("genie")),
    "algolia": ("ALGOLIA_ADMIN_KEY=§t§", hexes("algolia", 32)),
    "fastly": ("Fastly-Key: §t§", base64url("fastly", 32)),
    "mapbox": ("MAPBOX_TOKEN=§t§", f"sk.{packed({'u': 'acme'})}.{base64url('mb', 22)}"),
    "codecov": ("CODECOV_TOKEN=§t§", uuid("codecov")),
    "snyk": ("SNYK_TOKEN=§t§", uuid("snyk")),
    "deepl": ("Authorization: DeepL-Auth-Key §t§", uuid("deepl") + ":fx"),
    "mistral": ("MISTRAL_API_KEY=§t§", alnum("mistral", 32)),
    "cohere": ("CO_API_KEY=§t§", alnum("cohere", 40)),
    "azure-openai": ("api-key: §t§", hexes("azoai", 32)),
    "deepgram": ("DEEPGRAM_API_KEY=§t§", hexes("deepgram", 40)),
    "wandb": ("WANDB_API_KEY=§t§", hexes("wandb", 40)),
    "kaggle": ('{"username":"anna","key":"§t§"}', hexes("kaggle", 32)),
    "trello": ("https://api.trello.com/1/boards?key=abc&token=§t§", hexes("trello", 64)),
    "zendesk": ("anna@example.com/token:§t§", alnum("zendesk", 40)),
    "jira-basic": ("JIRA_API_TOKEN=§t§", alnum("jira", 24)),
    "twitter": ("TWITTER_ACCESS_SECRET=§t§", alnum("twitter", 45)),
    "spotify": ("SPOTIFY_CLIENT_SECRET=§t§", hexes("spotify", 32)),
    "fernet": ("FERNET_KEY=§t§", base64url("fernet", 43) + "="),
    "rails-master": ("RAILS_MASTER_KEY=§t§", hexes("rails", 32)),
    "ngrok": ("authtoken: §t§", base64url("ngrok", 49)),
    "vault-old": ("VAULT_TOKEN=§t§", "s." + alnum("vault-old", 24)),
    "consul": ("X-Consul-Token: §t§", uuid("consul")),
    "aws-secret": ("aws_secret_access_key=§t§", base64std("aws", 30)),
    "aws-session": ("AWS_SESSION_TOKEN=§t§", "FwoGZXIvYXdzE" + base64std("aws/s", 210)),
    "confluent": ("api.secret=§t§", base64std("confluent", 48)),
    "scaleway": ("SCW_SECRET_KEY=§t§", uuid("scw")),
    "hetzner": ("HCLOUD_TOKEN=§t§", alnum("hcloud", 64)),
    "paypal": ("PAYPAL_CLIENT_SECRET=§t§", "E" + base64url("paypal", 79)),
    "sentry-dsn-secret": ("https://§u§:§t§@sentry.example.com/42", hexes("dsn", 32)),
}
for kind, (line, token) in NAMED.items():
    given = {"u": hexes("dsn/public", 32)} if "§u§" in line else None
    before = line.partition("§t§")[0].rstrip("'\"=: ")
    keeps = [before] if given is None and before else []
    add("vendor-named", kind, line + "\n", keeps, given, t=token)

# --- keys in files -------------------------------------------------------------------------------

for label, seed in {
    "RSA PRIVATE KEY": "rsa",
    "PRIVATE KEY": "pkcs8",
    "EC PRIVATE KEY": "ec",
    "OPENSSH PRIVATE KEY": "openssh",
    "ENCRYPTED PRIVATE KEY": "encrypted",
    "DSA PRIVATE KEY": "dsa",
}.items():
    add("private-key", seed, "Here it is:\n§k§\nbye\n", ["Here it is:", "bye"], k=pem(label, seed))
add(
    "private-key",
    "pgp",
    "gpg --export-secret-keys\n-----BEGIN PGP PRIVATE KEY BLOCK-----\nComment: home\n\n§k§\n"
    "=§c§\n-----END PGP PRIVATE KEY BLOCK-----\n$\n",
    ["gpg --export-secret-keys"],
    {"c": alnum("pgp", 4)},
    k="\n".join(base64std(f"pgp/{n}", 48) for n in range(5)),
)
add(
    "private-key",
    "encrypted-headers",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,§i§\n\n§k§\n"
    "-----END RSA PRIVATE KEY-----\n",
    [],
    {"i": hexes("dek", 32).upper()},
    k="\n".join(base64std(f"dek/{n}", 48) for n in range(4)),
)
add(
    "private-key",
    "indented",
    "tls:\n  key: |\n§k§\n  port: 443\n",
    ["port: 443"],
    k="\n".join(f"    {line}" for line in pem("PRIVATE KEY", "indented").splitlines()),
)
add(
    "private-key",
    "cut-off",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n§k§\n",
    [],
    k="\n".join(base64std(f"cut/{n}", 48) for n in range(4)),
)
add(
    "private-key",
    "putty",
    "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: laptop\nPublic-Lines: 1\n§u§\n"
    "Private-Lines: 1\n§k§\nPrivate-MAC: §m§\n",
    ["PuTTY-User-Key-File-3: ssh-ed25519", "Comment: laptop"],
    {"u": base64std("putty/public", 45), "m": hexes("putty", 64)},
    k=base64std("putty/private", 36),
)
add(
    "private-key",
    "ethereum",
    "PRIVATE_KEY=0x§k§\n",
    ["PRIVATE_KEY"],
    k=hexes("ethereum", 64),
)
add(
    "private-key",
    "wif",
    "bitcoin wif private key: §k§\n",
    [],
    k="K" + drawn("wif", ALNUM.replace("0", "").replace("O", "").replace("I", ""), 51),
)
add(
    "service-account",
    "google",
    json.dumps(
        {
            "type": "service_account",
            "project_id": "acme-prod",
            "private_key_id": hexes("gsa/id", 40),
            "private_key": "§begin§§k§§end§",
            "client_email": "ci@acme-prod.iam.example.com",
        },
        indent=2,
        ensure_ascii=False,
    ),
    ["service_account", "acme-prod", "ci@acme-prod.iam.example.com"],
    {
        "begin": "-----BEGIN PRIVATE KEY-----\\n",
        "end": "\\n-----END PRIVATE KEY-----\\n",
    },
    k="\\n".join(base64std(f"gsa/{n}", 48) for n in range(6)),
)
add(
    "service-account",
    "google-user",
    '{"type": "authorized_user", "client_id": "1.apps.example", "client_secret": "§s§",'
    ' "refresh_token": "§r§"}',
    ["authorized_user", "1.apps.example"],
    s="d-" + base64url("adc", 22),
    r="1//0" + base64url("adc/r", 98),
)
add(
    "service-account",
    "kubernetes-token",
    "/var/run/secrets/kubernetes.io/serviceaccount/token:\n§t§\n",
    ["/var/run/secrets/kubernetes.io/serviceaccount/token"],
    t=jwt("k8s", iss="kubernetes/serviceaccount"),
)
add(
    "service-account",
    "claude-credentials",
    '{"claudeAiOauth":{"accessToken":"§a§","refreshToken":"§r§","expiresAt":1748658860401}}',
    ["claudeAiOauth", "1748658860401"],
    a="sk-ant-oat01-" + base64url("oauth/a", 93) + "AA",
    r="sk-ant-ort01-" + base64url("oauth/r", 93) + "AA",
)

# --- Azure ---------------------------------------------------------------------------------------

add(
    "azure-storage",
    "connection-string",
    "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=§k§;"
    "EndpointSuffix=core.windows.net\n",
    ["AccountName=acme", "EndpointSuffix=core.windows.net"],
    k=base64std("azure/storage", 64),
)
add(
    "azure-storage",
    "service-bus",
    "Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=§k§\n",
    ["sb://acme.servicebus.windows.net/", "SharedAccessKeyName=Root"],
    k=base64std("azure/sb", 32),
)
add(
    "azure-storage",
    "iot-hub",
    "HostName=acme.azure-devices.net;DeviceId=d1;SharedAccessKey=§k§\n",
    ["acme.azure-devices.net", "DeviceId=d1"],
    k=base64std("azure/iot", 32),
)
add(
    "azure-storage",
    "cosmos",
    "AccountEndpoint=https://acme.documents.azure.com:443/;AccountKey=§k§;\n",
    ["https://acme.documents.azure.com:443/"],
    k=base64std("azure/cosmos", 64),
)
add(
    "azure-storage",
    "sas-url",
    "https://acme.blob.core.windows.net/logs/a.txt?sv=2022-11-02&se=2025-04-01T00%3A00%3A00Z"
    "&sr=b&sp=r&sig=§s§\n",
    ["https://acme.blob.core.windows.net/logs/a.txt", "sv=2022-11-02", "sp=r"],
    s=base64std("azure/sas", 32).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
)
add(
    "azure-storage",
    "function-key",
    "https://acme.azurewebsites.net/api/run?code=§s§&name=x\n",
    ["https://acme.azurewebsites.net/api/run", "name=x"],
    s=base64url("azure/function", 54) + "==",
)
add(
    "azure-storage",
    "logic-app",
    "https://prod-7.westeurope.logic.azure.com/workflows/x/triggers/manual/run?"
    "sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=§s§\n",
    ["sv=1.0", "logic.azure.com"],
    s=base64url("azure/logic", 43),
)

# --- signed addresses, one-time passwords --------------------------------------------------------

add(
    "signed-url",
    "s3-v4",
    "https://acme.s3.eu-west-1.amazonaws.com/a.zip?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Date=20250301T120000Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature=§s§\n",
    ["acme.s3.eu-west-1.amazonaws.com/a.zip", "X-Amz-Expires=900"],
    s=hexes("s3v4", 64),
)
add(
    "signed-url",
    "s3-v4-session",
    "https://acme.s3.amazonaws.com/b?X-Amz-Security-Token=§t§&X-Amz-Signature=§s§"
    "&X-Amz-SignedHeaders=host\n",
    ["acme.s3.amazonaws.com/b", "X-Amz-SignedHeaders=host"],
    t="IQoJb3JpZ2luX2Vj" + alnum("s3v4/session", 200),
    s=hexes("s3v4/b", 64),
)
add(
    "signed-url",
    "s3-v2",
    "https://acme.s3.amazonaws.com/a.zip?AWSAccessKeyId=§i§&Expires=1741000000&Signature=§s§\n",
    ["acme.s3.amazonaws.com/a.zip", "Expires=1741000000"],
    {"i": "AKIA" + upper("s3v2", 16)},
    s=alnum("s3v2", 26) + "%3D",
)
add(
    "signed-url",
    "cloudfront",
    "https://d111.cloudfront.net/v.mp4?Expires=1741000000&Signature=§s§&Key-Pair-Id=§i§\n",
    ["https://d111.cloudfront.net/v.mp4", "Expires=1741000000"],
    {"i": "K" + upper("cf/pair", 13)},
    s=base64url("cloudfront", 340) + "__",
)
add(
    "signed-url",
    "cloudfront-cookie",
    "Cookie: CloudFront-Policy=§p§; CloudFront-Signature=§s§; lang=de\n",
    ["lang=de"],
    {"p": base64url("cf/policy", 120)},
    s=base64url("cf/cookie", 340),
)
add(
    "signed-url",
    "google-storage",
    "https://storage.googleapis.com/acme/a.zip?X-Goog-Algorithm=GOOG4-RSA-SHA256"
    "&X-Goog-Expires=900&X-Goog-Signature=§s§\n",
    ["storage.googleapis.com/acme/a.zip", "X-Goog-Expires=900"],
    s=hexes("gcs", 512),
)
add(
    "signed-url",
    "calendar",
    "https://calendar.google.com/calendar/ical/anna%40example.com/private-§s§/basic.ics\n",
    ["calendar.google.com", "basic.ics"],
    s=hexes("ical", 32),
)
add(
    "otp",
    "otpauth",
    "otpauth://totp/Acme:anna@example.com?secret=§s§&issuer=Acme&digits=6\n",
    ["otpauth://totp/Acme:anna@example.com", "issuer=Acme"],
    s=upper("otpauth", 32),
)
add(
    "otp",
    "setup-key",
    "Scan the code or enter the setup key §s§ in your app.\n",
    ["in your app"],
    s=" ".join(upper(f"setup{n}", 4) for n in range(8)),
)
add(
    "otp",
    "environment",
    "TOTP_SECRET=§s§\nTOTP_PERIOD=30\n",
    ["TOTP_PERIOD=30"],
    s=upper("totp", 16),
)
add(
    "otp",
    "oathtool",
    "oathtool --totp -b §s§\n",
    ["oathtool --totp -b"],
    s=upper("oathtool", 26),
)
add(
    "otp",
    "migration",
    "otpauth://hotp/Corp:bert?secret=§s§&counter=1\n",
    ["Corp:bert", "counter=1"],
    s=upper("hotp", 20),
)
add(
    "otp",
    "pin-with-token",
    "RSA passcode (PIN + token): §s§\n",
    ["RSA passcode"],
    s=digits("rsa", 10),
)
