# shellcheck shell=bash
# The recipe's settings, to be sourced. Every variable can be set from outside; README.md says what they mean.
# `recipe_for_model STEP MODEL ARGUMENTS` runs a step for one model.
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

configuration=(
  --out "${DATA_DIR:-$root/data/wmt14_en_de}"
  # text
  --bpe "${BPE:-subword-nmt}" --bpe-merges "${BPE_MERGES:-40000}"
  --normalise-punctuation --aggressive-hyphens
  --max-subwords "${MAX_SUBWORDS:-250}" --max-ratio "${MAX_RATIO:-1.5}"
  # models
  --arch "${ARCH:-transformer_wmt_en_de}"
  --default-k "${K:-32,64}" --default-attention "${ATTENTION:-encoder,cross}" --exact-below "${EXACT_BELOW:-0}"
  # training: Vaswani et al. (2017), base
  --epochs "${MAX_EPOCH:-0}" --updates "${MAX_UPDATE:-100000}"
  --max-tokens "${MAX_TOKENS:-4096}" --update-batches "${UPDATE_BATCHES:-8}" --precision "${PRECISION:-auto}"
  --lr "${LR:-7e-4}" --warmup-updates "${WARMUP_UPDATES:-4000}" --dropout "${DROPOUT:-0.1}" --label-smoothing 0.1
  --validate-updates "${VALIDATE_UPDATES:-1000}" --keep-checkpoints "${KEEP_CHECKPOINTS:-10}" --seed "${SEED:-1}"
  # translation
  --beam "${BEAM:-4}" --lenpen "${LENPEN:-0.6}" --average "${AVERAGE:-5}"
  # inference time against length
  --length-tokens "${LENGTH_TOKENS:-16384}"
)
if [ -n "${TEXT_DIR:-}" ]; then
  configuration+=(--data "$TEXT_DIR")
else
  configuration+=(--wmt14 "${VALID:-newstest2013}" --server "${WMT_BASE_URL:-https://www.statmt.org}")
fi
if [ -n "${PROJECTION:-}" ]; then configuration+=(--projection "$PROJECTION"); fi
if [ -n "${THREADS:-}" ]; then configuration+=(--threads "$THREADS"); fi
if [ -n "${PROCESSES:-}" ]; then configuration+=(--processes "$PROCESSES"); fi

recipe_for_model() {
  local step=$1
  shift
  case "${1-}" in
    -h | --help) recipe "$step" --help ;;
  esac
  if [ $# -eq 0 ] || [[ $1 == -* ]]; then
    echo "error: name the model first: transformer_wmt_en_de, or linformer_ or two_level_ before that" >&2
    exit 2
  fi
  recipe "$step" "${configuration[@]}" --model "$@"
}
