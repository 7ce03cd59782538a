"""What the configuration may hold: one literal table of keys, a row each."""

from __future__ import annotations

from src.model_utils.key import Key

# fmt: off
GROUPS: dict[str, tuple[Key, ...]] = {
    "run": (
        Key("device_target", "str", None, "where to compute; null: what the installed MindSpore defaults to",
            choices=("CPU", "GPU", "Ascend")),
        Key("device_id", "int", None, "number of the device; null: environment DEVICE_ID, else 0", ">= 0"),
        Key("cpu_kernels", "bool", True, "on a CPU compute with our own operators, which a C++ compiler "
            "builds at first use"),
        Key("compile_cache", "bool", True, "on a CPU keep the compiled step for the next start of the same "
            "configuration"),
        Key("seed", "int", 1, "start of every random sequence of the run", ">= 0"),
        Key("run_name", "name", "", "subfolder of save_checkpoint_path that keeps this run apart"),
        Key("save_checkpoint_path", "path", "./outputs", "folder for checkpoints, log and configuration"),
        Key("all_reduce_fusion", "indices", (), "several devices: numbers of parameters after which a new "
            "all-reduce of the gradients begins", ">= 1"),
        Key("resume", "resume", "", "go on from a checkpoint, or from the newest in a folder; auto: from the "
            "newest of run_name, or of all runs, and start anew if there is none"),
        Key("allow_changed_config", "bool", False, "let a resumed run have other keys or data than before"),
        Key("max_steps", "int", None, "stop after this step, to be resumed; null: at the end", ">= 1"),
        Key("max_minutes", "float", None, "stop after so long, to be resumed; null: never", "> 0"),
    ),
    "watching": (
        Key("log_every", "int", 10, "steps per log line, at the least", ">= 1"),
        Key("progress_bar", "bool", True, "show a progress bar when standard error is a terminal"),
        Key("tensorboard", "bool", False, "write TensorBoard events into <run>/tensorboard"),
        Key("open_profiler", "bool", False, "record where three steps spend their time, in <run>/profile"),
    ),
    "data": (
        Key("dataset", "str", "auto", "layout of the data; auto: recognised from the files",
            choices=("auto", "imagefolder", "cifar10", "cifar100")),
        Key("dataset_path", "path", "", "folder of the training data"),
        Key("eval_path", "path", "", "folder of the evaluation data"),
        Key("cifar100_label", "str", "fine", "the 100 fine or 20 coarse labels", choices=("fine", "coarse")),
        Key("class_num", "int", None, "classes; null: as many as in the data or the checkpoint", ">= 1"),
        Key("allow_unused_classes", "bool", False, "training: let class_num exceed the classes of the data"),
        Key("examples_per_class", "int", None, "training images drawn from each class; null: all", ">= 1"),
        Key("examples_per_class_seed", "int", 0, "which images examples_per_class draws", ">= 0"),
        Key("on_bad_image", "str", "stop", "an unreadable image ends the run or is left out",
            choices=("stop", "skip")),
        Key("train_image_size", "size", None, "training crop in pixels; null: the family's rule",
            ">= 1, <= 16384"),
        Key("train_resize_size", "size", None, "resize to this, then crop at random; null: the family's rule",
            ">= 1, <= 16384"),
        Key("crop_min", "float", None, "random resized crop of at least this share of the area, 0 is off; "
            "null: the family's rule", ">= 0, <= 1"),
        Key("eval_image_size", "size", None, "evaluation image in pixels; null: as in training",
            ">= 1, <= 16384"),
        Key("eval_crop_ratio", "float", None, "resize to eval_image_size / this, then crop the centre; 0: "
            "resize straight to it; null: the checkpoint's, else 0", ">= 0, <= 1"),
        Key("interpolation", "str", None, "filter of every resize; null: the checkpoint's, else BILINEAR",
            choices=("BILINEAR", "BICUBIC", "NEAREST", "LANCZOS")),
        Key("image_mean", "triple", None, "RGB mean in 0..255; null: the checkpoint's, else the network's"),
        Key("image_std", "triple", None, "RGB deviation in 0..255; null: as for image_mean", "> 0"),
        Key("reduced_decoding", "bool", False, "training: decode large JPEGs at 1/2, 1/4 or 1/8 of the size, "
            "as far as the crop keeps its pixels"),
        Key("image_cache", "path", "", "folder that keeps the resized training images, for later passes and "
            "runs; with train_resize_size alone"),
        Key("hflip", "float", 0.5, "probability of a left-right flip in training", ">= 0, <= 1"),
        Key("autoaugment", "bool", False, "AutoAugment with the ImageNet policy"),
        Key("randaugment", "augment", None, "RandAugment: operations an image, strength from 0 to 10"),
        Key("trivialaugment", "bool", False, "TrivialAugment"),
        Key("random_erasing", "float", 0.0, "probability of erasing a part of the image", ">= 0, <= 1"),
        Key("batch_size", "int", 512, "training images per device and step", ">= 1"),
        Key("eval_batch_size", "int", None, "as batch_size; null: batch_size / batch_split", ">= 1"),
        Key("train_num_workers", "int", None, "threads that read training images; null: one a core", ">= 1"),
        Key("eval_num_workers", "int", None, "threads that read evaluation images; null: one a core", ">= 1"),
    ),
    "network": (
        Key("backbone", "str", "", "network of the zoo, such as bit_r50x1 or BiT-M-R50x1"),
        Key("pretrained", "path", "", ".npz, .ckpt or .safetensors, or a folder with <backbone>.npz"),
        Key("replace_head", "bool", True, "start from a zero head instead of the pretrained one"),
        Key("pool", "str", None, "ViT: what the head sees; null: the checkpoint's, else token",
            choices=("token", "mean")),
        Key("gelu", "str", None, "ViT: form of GELU; null: the checkpoint's, else tanh",
            choices=("tanh", "exact")),
        Key("dropout", "float", None, "ViT: dropout of embeddings, attention output and MLP", ">= 0, < 1"),
        Key("attention_dropout", "float", None, "ViT: dropout of the attention weights", ">= 0, < 1"),
        Key("drop_path", "float", None, "ViT: stochastic depth of the last block, from 0 in the first",
            ">= 0, < 1"),
        Key("freeze", "words", (), "parameters that are not trained: names or patterns such as blocks.[0-5]"),
        Key("amp_level", "str", None, "mixed precision; null: O3 on Ascend, else O0",
            choices=("O0", "O1", "O2", "O3", "auto")),
        Key("amp_dtype", "str", "float16", "the half of mixed precision", choices=("float16", "bfloat16")),
    ),
    "schedule": (
        Key("lr_decay_mode", "str", None, "null: cosine with max_epoch, else the family's rule",
            choices=("cosine", "poly", "steps", "linear", "bit_staircase")),
        Key("lr_max", "float", None, "learning rate after the warm-up; null: the family's rule", "> 0"),
        Key("scale_lr", "int", None, "batch over all devices that the rates are meant for; they are "
            "multiplied by the batch of the run / this; null: they are taken as they are", ">= 1"),
        Key("lr_init", "float", 0.0, "learning rate that the warm-up starts from", ">= 0"),
        Key("lr_min", "float", 0.0, "learning rate of the last step", ">= 0"),
        Key("max_epoch", "float", None, "epochs of the run; null: schedule_steps", "> 0"),
        Key("warmup_epochs", "float", None, "epochs of rising rate, with max_epoch; null: 0", ">= 0"),
        Key("decay_epochs", "epochs", (), "epochs after which modes of steps decay, with max_epoch", "> 0"),
        Key("schedule_steps", "steps", None, "instead of epochs, in steps: warm-up end, any decays, end; "
            "null: the family's rule", ">= 0"),
        Key("decay_rate", "float", 0.1, "factor of each decay of mode steps", "> 0, <= 1"),
        Key("poly_power", "float", 2.0, "exponent of mode poly", "> 0"),
        Key("batch_split", "int", 1, "parts of a batch whose gradients are added up to save memory", ">= 1"),
    ),
    "optimizer": (
        Key("opt", "str", "momentum", "optimizer", choices=("momentum", "adamw")),
        Key("momentum", "float", 0.9, "momentum: share of the last update that is kept", ">= 0, < 1"),
        Key("beta1", "float", 0.9, "adamw: decay of the mean of the gradients", ">= 0, < 1"),
        Key("beta2", "float", 0.999, "adamw: decay of the mean of their squares", ">= 0, < 1"),
        Key("epsilon", "float", 1e-08, "adamw: is added to the root of the mean square", "> 0"),
        Key("weight_decay", "float", 0.0, "adamw: decoupled decay; momentum: L2 penalty. Of kernels alone",
            ">= 0"),
        Key("no_weight_decay_filter", "words", (), "also no decay where the name holds one of these words"),
        Key("layer_decay", "float", 1.0, "factor of the learning rate from each layer to the one below",
            "> 0, <= 1"),
        Key("clip_norm", "float", None, "bound of the gradients' global norm, 0 is off; null: the family's "
            "rule", ">= 0"),
        Key("gc_flag", "bool", False, "gradient centralization"),
        Key("ema_decay", "float", 0.0, "evaluate and save the moving average of the weights with this decay; "
            "0 is off", ">= 0, < 1"),
        Key("max_bad_steps", "int", 10, "so many steps in a row with numbers that are not finite end the run",
            ">= 1"),
    ),
    "loss": (
        Key("loss_name", "str", None, "null: ce, or ce_smooth_mixup with use_label_smooth",
            choices=("ce", "ce_smooth", "ce_smooth_mixup")),
        Key("use_label_smooth", "bool", None, "smooth the labels by label_smooth_factor; null: as loss_name "
            "says"),
        Key("label_smooth_factor", "float", 0.1, "share of the label that all classes get", ">= 0, < 1"),
        Key("mixup", "float", None, "alpha of Beta(alpha, alpha), 0 is off; null: the family's rule", ">= 0"),
        Key("cutmix", "float", 0.0, "the same for CutMix; with both, each batch has one of the two", ">= 0"),
        Key("loss_scale", "float", 1024.0, "keeps float16 gradients from vanishing; unused at O0", ">= 1"),
        Key("loss_scale_mode", "str", "static", "dynamic halves it at an overflow and doubles it after 2000 "
            "steps without", choices=("static", "dynamic")),
    ),
    "evaluation": (
        Key("checkpoint_path", "path", "", "weights that eval.py evaluates and export.py exports"),
        Key("eval_every", "int", None, "steps between evaluations; 0: only after the last; null: ten a run",
            ">= 0"),
        Key("eval_interval", "int", None, "epochs between evaluations, instead of eval_every", ">= 1"),
        Key("eval_offset", "int", -1, "evaluate after epoch e, from 0, if eval_interval divides e - this"),
    ),
    "cloud": (
        Key("enable_modelarts", "bool", False, "copy the data in, run on local paths, copy the results out"),
        Key("data_url", "url", "", "where the data is: s3://, obs://, file:// or a path"),
        Key("checkpoint_url", "url", "", "where the pretrained weights are, a file or a folder"),
        Key("train_url", "url", "", "where the results go"),
        Key("data_path", "path", "/cache/data", "local copy of data_url"),
        Key("load_path", "path", "/cache/model", "local copy of checkpoint_url"),
        Key("output_path", "path", "/cache/train", "local folder of the results"),
        Key("upload_epochs", "int", None, "epochs between uploads while training; null: only at the end",
            ">= 1"),
        Key("copy_minutes", "int", 120, "how long the other ranks of a machine wait for its copy", ">= 1"),
    ),
    "export": (
        Key("file_format", "str", "MINDIR", "what export.py writes", choices=("MINDIR", "ONNX", "AIR")),
        Key("file_name", "path", "", "the exported file; null: beside the checkpoint"),
        Key("mindir_version", "str", "3", "1 is for MindSpore Lite 2.0, such as the CPU runtime of PyPI",
            choices=("1", "3")),
        Key("check_images", "int", 32, "images of eval_path on which the exported file is compared", ">= 1"),
    ),
    "inference": (
        Key("model_path", "path", "", "exported file that preprocess.py and postprocess.py work for"),
        Key("preprocess_path", "path", "./preprocess_Result", "folder of the tensors for the C++ program"),
        Key("result_path", "path", "./result_Files", "folder of its results"),
    ),
    "checkpoint": (
        Key("save_checkpoint", "bool", True, "write checkpoints while training"),
        Key("save_checkpoint_epochs", "int", None, "epochs between checkpoints that are kept besides the "
            "last and the best; null: none", ">= 1"),
        Key("save_checkpoint_steps", "int", None, "the same in steps", ">= 1"),
        Key("keep_checkpoint_max", "int", 3, "how many of those stay; the oldest goes", ">= 1"),
        Key("save_checkpoint_minutes", "float", 15.0, "the last checkpoint is at most so old", "> 0"),
        Key("checkpoint_format", "str", "ckpt", "MindSpore's format, or that of Hugging Face",
            choices=("ckpt", "safetensors")),
    ),
}
# fmt: on

# Keys that a user of the model zoo's recipes may still have, and what takes their place.
RETIRED = {
    "vit_config_path": "choose the network by backbone; pool, dropout, drop_path and gelu are keys",
}

CONFIG_PATH = Key("config_path", "path", "", "YAML file of the keys below; the command line wins over it")
SCHEMA: dict[str, Key] = {key.name: key for keys in GROUPS.values() for key in keys}

# Keys in which the ranks of a run may differ.
LOCAL_KEYS = {"device_id", "config_path", "resume"} | {
    key.name for key in SCHEMA.values() if key.type in ("path", "url")
}

# fmt: off
# Keys of this start alone, which a resumed run does not take over.
START_KEYS = {
    "allow_changed_config", "max_minutes", "max_steps", "resume", "run_name", "save_checkpoint_path",
}

# Keys in which a resumed run may differ from its beginning: none of them changes what is learnt.
FREE_KEYS = LOCAL_KEYS | START_KEYS | {
    "all_reduce_fusion", "compile_cache", "cpu_kernels", "device_target", "eval_batch_size", "eval_every",
    "eval_interval", "eval_num_workers", "eval_offset", "max_bad_steps", "on_bad_image", "replace_head",
    "train_num_workers",
} | {
    key.name for group in ("watching", "cloud", "export", "inference", "checkpoint") for key in GROUPS[group]
}
# fmt: on
