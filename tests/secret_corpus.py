"""Names and texts as people write them, and made-up keys of the shapes that providers give.

The keys are put together when the tests run, so that nothing that scans files takes one for real.
"""

from __future__ import annotations

import base64
import json
import random
import string
import uuid

_chance = random.Random(28)
UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
ANY = UPPER + LOWER + DIGITS
HEX = DIGITS + "abcdef"
URL = ANY + "-_"


def some(count: int, of: str = ANY) -> str:
    """That many characters by chance, a letter and a digit among the first of them."""
    text = [_chance.choice(of) for _ in range(count)]
    letters, digits = set(of) & set(LOWER + UPPER), set(of) & set(DIGITS)
    if count > 1 and letters and digits:
        text[0], text[1] = _chance.choice(sorted(letters)), _chance.choice(sorted(digits))
    return "".join(text)


def jwt() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return ".".join((part({"alg": "HS256"}), part({"sub": "1234567890"}), some(43, URL)))


def pem(kind: str = "RSA ") -> str:
    lines = "\n".join(some(64) for _ in range(3))
    return f"-----BEGIN {kind}PRIVATE" + f" KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----\n"


def pgp() -> str:
    return (
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{some(64)}\n-----END PGP PRIVATE KEY BLOCK-----"
    )


# By provider: what is a secret wherever it stands.
KEYS: dict[str, str] = {
    "AWS access key id": "AK" + "IA" + some(16, UPPER + DIGITS),
    "AWS temporary key id": "AS" + "IA" + some(16, UPPER + DIGITS),
    "Google API": "AI" + "za" + some(35, URL),
    "Google OAuth client": "GOC" + "SPX-" + some(28, URL),
    "Google OAuth token": "ya" + "29." + some(60, URL),
    "Google refresh token": "1/" + "/0" + some(44, URL),
    "Google service account": json.dumps({"type": "service_account", "private_key": pem("")}),
    "Azure storage": "DefaultEndpointsProtocol=https;AccountName=a;Account" + f"Key={some(86)}==",
    "Azure service bus": "Endpoint=sb://a.net/;SharedAccess" + f"Key={some(43)}=",
    "Azure client": some(3) + "8Q" + "~" + some(34, URL),
    "Azure SAS": "https://a.blob.core.windows.net/c?sv=2022&si" + f"g={some(43)}%3D",
    "GitHub classic": "gh" + "p_" + some(36),
    "GitHub OAuth": "gh" + "o_" + some(36),
    "GitHub app": "gh" + "s_" + some(36),
    "GitHub user": "gh" + "u_" + some(36),
    "GitHub refresh": "gh" + "r_" + some(36),
    "GitHub fine-grained": "github" + "_pat_" + some(22) + "_" + some(59),
    "GitLab": "gl" + "pat-" + some(20, URL),
    "GitLab runner": "gl" + "rt-" + some(20, URL),
    "GitLab deploy": "gl" + "dt-" + some(20, URL),
    "Slack bot": "xo" + "xb-" + some(12, DIGITS) + "-" + some(12, DIGITS) + "-" + some(24),
    "Slack user": "xo" + "xp-" + some(12, DIGITS) + "-" + some(32, HEX),
    "Slack app": "xa" + "pp-1-A" + some(10, UPPER + DIGITS) + "-" + some(13, DIGITS),
    "Slack webhook": "https://hooks.slack" + f".com/services/T{some(8, UPPER + DIGITS)}/B"
    f"{some(8, UPPER + DIGITS)}/{some(24)}",
    "Stripe live": "sk" + "_live_" + some(24),
    "Stripe test": "sk" + "_test_" + some(24),
    "Stripe restricted": "rk" + "_live_" + some(24),
    "Stripe webhook": "wh" + "sec_" + some(32),
    "Twilio": "S" + "K" + some(32, HEX),
    "SendGrid": "S" + "G." + some(22, URL) + "." + some(43, URL),
    "OpenAI": "s" + "k-" + some(48),
    "OpenAI project": "s" + "k-proj-" + some(64),
    "Anthropic": "s" + "k-ant-api03-" + some(93) + "AA",
    "OpenRouter": "s" + "k-or-v1-" + some(64, HEX),
    "Hugging Face": "h" + "f_" + some(34, UPPER + LOWER),
    "Groq": "gs" + "k_" + some(52),
    "Replicate": "r" + "8_" + some(37),
    "Perplexity": "pp" + "lx-" + some(48),
    "LangSmith": "ls" + "v2_pt_" + some(32, HEX) + "_" + some(10, HEX),
    "npm": "np" + "m_" + some(36),
    "PyPI": "py" + "pi-AgEIcHlwaS5vcmc" + some(80, URL),
    "RubyGems": "ruby" + "gems_" + some(48, HEX),
    "DigitalOcean": "do" + "p_v1_" + some(64, HEX),
    "Shopify": "sh" + "pat_" + some(32, HEX),
    "Shopify shared": "sh" + "pss_" + some(32, HEX),
    "Square": "sq" + "0atp-" + some(22, URL),
    "Square token": "EA" + "AA" + some(60, URL),
    "Mailgun": "ke" + "y-" + some(32, HEX),
    "Telegram": some(10, DIGITS) + ":A" + "A" + some(33, URL),
    "Discord bot": "M" + some(23) + "." + some(6) + "." + some(38),
    "Discord webhook": "https://discord.com/api/web" + f"hooks/{some(18, DIGITS)}/{some(68)}",
    "Databricks": "da" + "pi" + some(32, HEX),
    "Heroku": "HR" + "KU-" + some(60, URL),
    "Atlassian": "ATAT" + "T3xFfGF0" + some(170, URL),
    "Linear": "lin" + "_api_" + some(40),
    "Notion": "nt" + "n_" + some(46),
    "Notion older": "sec" + "ret_" + some(43),
    "Figma": "fi" + "gd_" + some(40),
    "Doppler": "dp" + ".st.dev." + some(43),
    "Doppler personal": "dp" + ".pt." + some(43),
    "Vault": "hv" + "s." + some(90, URL),
    "Vault batch": "hv" + "b." + some(120, URL),
    "Terraform Cloud": some(14) + ".atlas" + "v1." + some(67, URL),
    "PlanetScale": "pscale" + "_tkn_" + some(43, URL),
    "PlanetScale password": "pscale" + "_pw_" + some(43, URL),
    "Postman": "PM" + "AK-" + some(24, HEX) + "-" + some(34, HEX),
    "New Relic": "NR" + "AK-" + some(27, UPPER + DIGITS),
    "Sentry": "snt" + "rys_" + base64.b64encode(some(60).encode()).decode(),
    "Grafana": "gl" + "sa_" + some(32) + "_" + some(8, HEX),
    "Grafana Cloud": "gl" + "c_" + base64.b64encode(some(60).encode()).decode(),
    "Grafana older": "ey" + "JrIjoi" + some(70),
    "Docker Hub": "dck" + "r_pat_" + some(27, URL),
    "Cloudflare origin": "v1" + ".0-" + some(24, HEX) + "-" + some(146, HEX),
    "Supabase": "sb" + "p_" + some(40, HEX),
    "Netlify": "nf" + "p_" + some(36),
    "Pulumi": "pu" + "l-" + some(40, HEX),
    "Mapbox": "s" + "k.eyJ" + some(60) + "." + some(22, URL),
    "age": "AGE-SECRET" + "-KEY-1" + some(58, UPPER + DIGITS),
    "PEM RSA": pem(),
    "PEM PKCS8": pem(""),
    "PEM OpenSSH": pem("OPENSSH "),
    "PEM EC": pem("EC "),
    "PGP": pgp(),
    "JWT": jwt(),
    "PostgreSQL URL": "postgresql://app:" + "hunter2@db.example.org:5432/app",
    "MongoDB URL": "mongodb+srv://app:" + "p%40ss@cluster0.example.net/test",
    "Redis URL": "redis://:" + "s3cr3t@cache.example.org:6379/0",
    "AMQP URL": "amqps://user:" + "rabbit-1@mq.example.org/vhost",
    "Git URL": "https://user:" + "letmein@git.example.org/a/b.git",
}

# By provider: a name, and a text that has no format of its own.
NAMED: dict[str, tuple[str, str]] = {
    "AWS": ("aws_secret_access_key", some(40, ANY + "/+")),
    "AWS session": ("AWS_SESSION_TOKEN", some(120, ANY + "/+")),
    "Datadog": ("DD_API_KEY", some(32, HEX)),
    "Datadog application": ("DATADOG_APP_KEY", some(40, HEX)),
    "Cloudflare": ("CLOUDFLARE_API_TOKEN", some(40, URL)),
    "Cloudflare global": ("cf_api_key", some(37, HEX)),
    "Fastly": ("FASTLY_API_TOKEN", some(32, URL)),
    "Okta": ("okta_api_token", "00" + some(40, URL)),
    "Twilio": ("TWILIO_AUTH_TOKEN", some(32, HEX)),
    "Heroku older": ("HEROKU_API_KEY", str(uuid.UUID(int=_chance.getrandbits(128), version=4))),
    "Weights and Biases": ("WANDB_API_KEY", some(40, HEX)),
    "Algolia": ("ALGOLIA_API_KEY", some(32, HEX)),
    "CircleCI": ("CIRCLECI_TOKEN", some(40, HEX)),
    "Cohere": ("co_api_key", some(40)),
    "Mistral": ("MISTRAL_API_KEY", some(32)),
    "Pinecone": ("PINECONE_API_KEY", str(uuid.UUID(int=_chance.getrandbits(128), version=4))),
    "Kaggle": ("kaggle_key", some(32, HEX)),
    "Azure OpenAI": ("AZURE_OPENAI_KEY", some(32, HEX)),
    "Jupyter": ("jupyter_token", some(48, HEX)),
    "Django": ("SECRET_KEY", "django-insecure-" + some(50, ANY + "!@#$%^&*(-_=+)")),
    "Flask": ("app_secret", "dev"),
    "PostgreSQL": ("PGPASSWORD", "hunter2"),
    "SMTP": ("smtp_password", "correct horse battery staple"),
    "SSH": ("key_passphrase", "open sesame"),
    "LDAP": ("bindPasswd", "x"),
    "OAuth": ("clientSecret", "battery"),
    "a header": ("Authorization", "Bearer " + some(40, URL)),
    "a cookie": ("session_cookie", some(64, HEX)),
    "a basic header": ("authorization", "Basic " + base64.b64encode(some(30).encode()).decode()),
}

# Names that data scientists give, with what stands under them: none of it is a secret.
_TEXT = r"""
token=cat; token=the; next_token=dog; prev_token=<s>; pad_token=[PAD]; unk_token=[UNK];
cls_token=[CLS]; sep_token=[SEP]; mask_token=[MASK]; eos_token=<|endoftext|>; bos_token=<s>;
token_type=NOUN; token_pattern=(?u)\b\w\w+\b; token_count=12; tokens=a b c;
tokenizer=bert-base-uncased; special_token=<|reserved_special_token_0|>; word_token=unbelievable;
stop_token=\n\n; start_token=BEGIN; token=internationalization;
token=antidisestablishmentarianism; token=COVID19; token=don't; current_token=1984;
token=http://t.co/abc; token=@user; token=#hashtag2020; token=state-of-the-art; key=customer_id;
key=country; sort_key=created_at; group_key=region; primary_key=order_id;
foreign_key=customers.id; join_key=patient_number; index_key=timestamp;
row_key=2024-01-15T10:00:00Z; partition_key=dt=2024-01-15; cache_key=features:v3:train;
cache_key=user:1234567890:session; s3_key=raw/2024/01/15/part-00000.parquet;
object_key=models/bert/pytorch_model.bin; s3_key=s3://bucket/path/file_01.parquet;
key=chr17:7571720-7590868; key=ENSG00000139618.15; key=GSE123456_GSM1234567;
key=10.1038/s41586-020-2649-2; key=DE89370400440532013000; key=layer4.1.conv2.weight;
key=encoder.layers.11.self_attn.k_proj.weight; key=resnet50_imagenet1k_v2;
state_key=state_dict.layer4.1.conv2.weight; key=gpt2-medium-finetuned-v3;
metric_key=val_loss_epoch_12; key=experiment-12-seed-42-run-3; key=2024-01-15_model_v3_lr0.001;
key=lr=0.001,bs=32,ep=10; key=feature_17_lag_3_mean_7d; key=temperature_2m_max_2020;
key=sub-01_ses-02_task-rest_run-1_bold; key=patient_0001_visit_02_mri_t1w;
key=2023W52_store_104_item_2203; key=q1_2023_revenue_usd; key=getUserById2024;
key=customerOrdersByRegion2023; key=ISBN9783161484100; key=order_0000123456789;
key=SKU1234567890123456; key=img_001_a2_b3_c4.png; key=20240115T101500Z; key=Sheet1!A1:B20000;
key=(0,0,1,2,3,4,5,6,7,8); key=US-CA-94105-2024; key=C major; music_key=F# minor; keys=a,b,c;
keyboard=qwerty; monkey=rhesus; hockey=NHL; turkey=Ankara; key_error=KeyError: 'x';
keyword=price; auth=oauth2; auth=basic; auth=none; author=Jane Austen; authors=Knuth, Lamport;
auth_method=password; bearer=bond; bearer=messenger; bearer_type=coupon; pin=GPIO17; pin=A0;
pin_code=94105; pin=D13; cookie=chocolate chip; cookie=session; cookie_policy=strict;
pwd=/home/me/project; pwd=/data; pwd=/home/me/projects/2024/q1/analysis_v2;
old_pwd=/tmp/run_2024_01_15; cookie_name=sid; password_length=12; password_column=pw_hash;
password_policy=at least 8; api_key_col=key; api_key_name=prod; secret_santa=Alice;
secrets_found=none; secret_count=3; secretary=Bob; credential_type=service; passwords_seen=many;
password_field=pw; api_keys_df=loaded; credential_provider=default;
private_key_path=/home/me/.ssh/id_rsa; private_key_file=key.pem; access_key_id_col=akid;
set_default_credential_provider=auto; ssl_key_size=4096; encryption_key_bits=256; key_length=32;
name=Alice; email=alice@example.org; city=Zürich; country=CH; model=xgboost; path=data/train.csv;
url=https://example.org/data.csv; url=http://localhost:8888/lab; db=sqlite:///data.db;
dsn=postgresql://localhost:5432/app; dsn=postgresql://app@localhost/app; host=db.example.org;
url=https://medium.com/@user/post-12; url=https://www.example.org/a:b/c@d;
repo=git@github.com:a/b.git; image=docker://ubuntu:22.04@sha256:abc;
url=https://api.example.org/v1?page=2&limit=100;
template=postgresql://{user}:{password}@{host}/db; template=mysql://%s:%s@%s/%s;
template=https://<user>:<password>@example.org; template=ftp://${USER}:${PASS}@host; ts=12:30:45;
s3=s3://bucket/key; gs=gs://bucket/a/b; abfs=abfss://container@account.dfs.core.windows.net/a;
hash=5f4dcc3b5aa765d61d8327deb882cf99; sha=da39a3ee5e6b4b0d3255bfef95601890afd80709;
run_id=3fa85f64-5717-4562-b3fc-2c963f66afa6; uuid=123e4567-e89b-12d3-a456-426614174000;
commit=a1b2c3d; checksum=d41d8cd98f00b204e9800998ecf8427e; etag=33a64df551425fcc55e4d42a148795d9;
slug=task-management-for-teams-2024; slug=risk-adjusted-return-on-capital;
slug=disk-usage-by-directory-tree; package=sk-learn-contrib-imbalanced-learn;
package=scikit-learn; slug=desk-and-chair-set-for-home-office;
slug=mask-rcnn-resnet50-fpn-coco-2017-weights; slug=flask-sqlalchemy-migrations-and-more;
css=sk-estimator-doc-link; dna=ACGTACGTACGTACGTACGT;
protein=MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVHRVGTLY; smiles=CC(=O)OC1=CC=CC=C1C(=O)O; header=-----;
line=----------BEGIN----------; title=BEGIN PRIVATE KEY; text=the password is secret;
text=PASSWORD; text=token; text=api_key; column=password; columns=password,token,key;
label=secret; base64=aGVsbG8gd29ybGQ=; dtype=float32; fmt=%Y-%m-%d;
sql=select password from users where token = 1; regex=[A-Za-z0-9_]{36}; prefix=ghp_; prefix=sk-;
prefix=xoxb-; prefix=AKIA; example=sk-...; example=ghp_xxxx; colors=#1f77b4; cmap=viridis;
marker=o; style=--; device=cuda:0; seed=42; version=1.26.4; locale=de_CH.UTF-8;
metric=neg_mean_squared_error; scoring=roc_auc; solver=lbfgs; kernel=rbf; penalty=l2;
criterion=gini; activation=relu; optimizer=adam; loss=categorical_crossentropy;
strategy=most_frequent; handle_unknown=ignore;
estimator=RandomForestClassifier(n_estimators=100); stage=preprocessing; split=train;
fold=fold_3; target=SalePrice; feature=GarageYrBlt; species=Iris-setosa;
sentence=It was the best of times; lang=en; question=What is the capital of France?;
prompt=You are a helpful assistant.; answer=Paris; role=user;
review=Great product, works as expected; tweet=RT @user: check https://t.co/a1b2c3d4e5; emoji=🙂;
tz=Europe/Zurich; gene=BRCA1; drug=acetylsalicylic acid; ticker=AAPL; isin=US0378331005;
cusip=037833100; currency=USD; iban_country=DE; lat_lon=47.3769,8.5417; geohash=u0qj8f;
postcode=8001; phone=+41 44 123 45 67; ip=192.168.0.1; mac=00:1B:44:11:3A:B7;
user_agent=Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36; mime=application/json;
encoding=utf-8; sep=\t; na=NaN; arn=arn:aws:s3:::bucket/key; zone=us-east-1a;
instance=m5.2xlarge; bucket=my-data-2024; table=analytics.events_2024; cluster=prod-eu-1;
namespace=default; pod=web-7d4b9c6f5d-x2k8p;
wheel=numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl; job=train-20240115-101500;
notebook=01_cleaning.ipynb; author_id=0000-0002-1825-0097; doi=10.5281/zenodo.1234567;
arxiv=arXiv:1706.03762v5; pmid=PMID12345678; grant=R01GM123456; trial=NCT01234567; icd=E11.9;
cas=50-78-2; inchi=InChI=1S/H2O/h1H2; df_key=left; merge_key=id; on_key=date; dict_key=total;
hash_key=pk; range_key=sk; unique_key=email; lookup_key=zip; composite_key=a|b|c;
natural_key=isbn; surrogate_key=1001; answer_key=A,B,C,D; map_key=legend; hot_key=ctrl+s;
public_key=ed25519; key_column=id; key_name=id; key_type=str; key_fn=len; keyspace=analytics;
token_ids=1,2,3; token_len=512; token_embedding=mean; tokenize=True; tokenized=the cat sat;
n_tokens=77; max_tokens=256; first_token=Once; last_token=after.; target_token=Paris;
subword_token=##ing; byte_token=<0x0A>; image_token=<image>; language_token=<|en|>;
task_token=<|transcribe|>; time_token=<|12.34|>; speaker_token=[SPEAKER_01]; entity_token=B-PER;
pos_token=NNP; sentence_token=The quick brown fox; emoji_token=:smile:; number_token=3.14159;
date_token=2024-01-15; hyphen_token=well-known; camel_token=getUserName;
snake_token=get_user_name; path_token=/usr/local/bin/python3.11; pass_rate=0.93; first_pass=ok;
pass=1; bypass=no; passenger=Kate; passport_country=CH; compass=N; boarding_pass=LX 123;
author_key=tolkien; authors_pin=needle; spin=up; tailspin=recovery; hatpin=gold; bowling_pin=7;
pinned=no; opinion=fair
"""
DATA: list[tuple[str, str]] = [
    (name, text)
    for name, _, text in (entry.strip().partition("=") for entry in _TEXT.split(";"))
    if name
]
