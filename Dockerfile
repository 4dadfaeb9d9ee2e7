# The image of web and worker; compose.yaml starts both, with PostgreSQL and Redis.
FROM python:3.13-slim AS build
WORKDIR /app
RUN python -m venv /opt/venv
COPY . .
# Editable: templates, static files and the code stay together in /app.
RUN /opt/venv/bin/pip install --no-cache-dir -e '.[postgres,redis,offline,metrics]'
# Whoever runs it may not write here: every start would compile all of the code again.
RUN /opt/venv/bin/python -m compileall -q manage.py chatapp compaction

FROM python:3.13-slim
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PALIMPSEST_DATA_DIR=/data \
    LOG_FORMAT=json
RUN useradd --system --uid 10001 --home-dir /app --shell /usr/sbin/nologin palimpsest \
    && install --directory --owner palimpsest --mode 700 /data
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
USER palimpsest
VOLUME /data
EXPOSE 8000
# compose.yaml has another one for the worker, which listens nowhere.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://localhost:8000/healthz', timeout=4)"]
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0", "--workers", "2"]
