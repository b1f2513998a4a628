# Gabarito as an image.
#   docker build -t gabarito .                            the model comes into the volume /models
#   docker build -t gabarito --build-arg BAKE_MODEL=1 .   the model is part of the image
#   docker run -p 127.0.0.1:8000:8000 -v gabarito-models:/models gabarito
# Needs BuildKit (the default builder). Any base with Python 3.11 or newer on Debian will do.
ARG BASE=python:3.12-slim

# --- compile: the dependencies, among them llama.cpp -----------------------------------------
FROM ${BASE} AS compile
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ make cmake git \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1

# Only pyproject.toml decides this layer, so that a change of the code compiles nothing. The image
# is to run on other machines than the one that builds it: no flags of this one's processor. What
# remains on x86-64 is AVX2, FMA, F16C and BMI2 (any PC processor since 2015). For one's own machine
# --build-arg CMAKE_ARGS=-DGGML_NATIVE=ON is faster. pip keeps a compiled wheel without regard to
# the flags, hence a cache folder for each set of them.
ARG CMAKE_ARGS="-DGGML_NATIVE=OFF"
WORKDIR /src
COPY pyproject.toml ./
RUN --mount=type=cache,target=/var/cache/pip \
    export CMAKE_ARGS \
    && python3 -c "import tomllib; \
       print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
       > /tmp/requirements.txt \
    && pip install --quiet -r /tmp/requirements.txt \
       --cache-dir "/var/cache/pip/$(printf %s "$CMAKE_ARGS" | sha256sum | cut -c1-12)"
# The bindings' wheel has every library six times: as three names for each, since wheels know no
# links, and all that once more, with headers, beside the package.
RUN cd "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && rm -rf lib include bin \
    && cd llama_cpp/lib \
    && for name in *.so *.so.[0-9]; do \
         real=$(ls "${name%%.so*}".so.*.* | head -n 1) && ln -sf "$real" "$name" || exit 1; done

# --- install: the program itself -------------------------------------------------------------
FROM compile AS install
COPY README.md LICENSE ./
COPY config config
COPY grammar grammar
COPY parsing parsing
COPY server server
RUN --mount=type=cache,target=/var/cache/pip \
    pip install --quiet --cache-dir /var/cache/pip/pure --no-deps .

# --- model: fetched and checked, or nothing --------------------------------------------------
FROM install AS model
ARG BAKE_MODEL=0
ARG MODEL=default
RUN mkdir -p /models \
    && if [ "$BAKE_MODEL" = 1 ]; then gabarito fetch "$MODEL" --cache-dir /models; fi

# --- the image -------------------------------------------------------------------------------
FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /models --shell /usr/sbin/nologin gabarito
COPY --from=install /opt/venv /opt/venv
COPY --from=model --chown=10001:10001 /models /models
COPY config /etc/gabarito

# Everything that is written at run time goes to /models: fetched models and other caches.
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/models \
    XDG_CACHE_HOME=/models/.cache \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GABARITO_CONFIG=/etc/gabarito \
    GABARITO_CACHE_DIR=/models \
    GABARITO_HOST=0.0.0.0
USER 10001:10001
WORKDIR /models
VOLUME ["/models"]
EXPOSE 8000

# Healthy is what can answer requests. The start period covers a first download on a slow line.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15m --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('GABARITO_PORT', '8000') + '/ready', timeout=4)"]
ENTRYPOINT ["gabarito"]
CMD ["serve"]
