# Two targets:  docker build --target api -t zetadp-api .     docker build --target worker -t zetadp-worker .
# Both need the same data folder (a volume at /data), or the same PostgreSQL (ZETADP_DATABASE_URL) and a bucket (ZETADP_STORAGE_URL).
# The user has a number, by which Kubernetes knows that it isn't root; deploy/ has a Compose file and a Helm chart.
FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 ZETADP_DATA_DIR=/data
WORKDIR /srv/zetadp
RUN useradd --uid 10001 --user-group --create-home zetadp && mkdir /data && chown zetadp /data
COPY constraints.txt pyproject.toml README.md ./
COPY mechanisms mechanisms
COPY accountants accountants
COPY trainer trainer
COPY app app
COPY zetadp zetadp
VOLUME /data

# Both install with a compiler, for the inner loops of the accounting and of the noise, and without it afterwards.
FROM base AS api
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev \
    && pip install --constraint constraints.txt '.[s3]' \
    && apt-get purge -y -qq --auto-remove gcc libc6-dev && rm -rf /var/lib/apt/lists/*
USER 10001:10001
EXPOSE 8000
# It listens beyond loopback, so it starts only with a first admin key: -e ZETADP_ADMIN_KEY="$(zetadp keys generate)", kept by you.
ENV ZETADP_HOST=0.0.0.0
HEALTHCHECK --interval=10s --timeout=3s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
CMD ["zetadp", "serve", "--port", "8000"]

FROM base AS worker
# In place, where it is run from.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev \
    && pip install "$(grep '^torch==' constraints.txt)" && pip install --constraint constraints.txt --editable '.[worker,kubernetes,s3]' \
    && apt-get purge -y -qq --auto-remove gcc libc6-dev && rm -rf /var/lib/apt/lists/*
USER 10001:10001
# A worker or a launcher that lives, whatever its database does. One that waits for its database at the start gives no sign yet.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["zetadp", "alive"]
CMD ["zetadp", "worker"]
