"""Where methods come from, as data: the table of methods, reports and the documentation all read it from here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A publication.

    - `key`: how BibTeX calls it;
    - `authors`: full names, given name first;
    - `venue`: where it appeared, written out; a preprint has its number here, as in `arXiv:2109.04240`;
    - `url`: a page that is free to read.
    """

    key: str
    title: str
    authors: tuple[str, ...]
    venue: str
    year: int
    url: str

    @property
    def short(self) -> str:
        """As one names it in a sentence.

        >>> TAWT.short, TEXTCNN.short
        ('Chen et al. (2022)', 'Kim (2014)')
        """
        families = [author.split()[-1] for author in self.authors]
        names = f"{families[0]} et al." if len(families) > 2 else " and ".join(families)
        return f"{names} ({self.year})"

    def bibtex(self) -> str:
        """The entry for a bibliography; the title keeps its capitals.

        >>> print(TEXTCNN.bibtex())
        @inproceedings{kim2014convolutional,
          title = {{Convolutional Neural Networks for Sentence Classification}},
          author = {Yoon Kim},
          booktitle = {Conference on Empirical Methods in Natural Language Processing},
          year = {2014},
          url = {https://aclanthology.org/D14-1181},
        }
        """
        preprint = self.venue.startswith("arXiv:")
        fields = {
            "title": f"{{{_escape(self.title)}}}",
            "author": _escape(" and ".join(self.authors)),
            "journal" if preprint else "booktitle": _escape(self.venue),
            "year": str(self.year),
            "url": self.url,
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
        return "\n".join([f"@{'article' if preprint else 'inproceedings'}{{{self.key},", *lines, "}"])


def _escape(text: str) -> str:
    for character in "&%#_$":
        text = text.replace(character, f"\\{character}")
    return text


TAWT = Paper(
    key="chen2022weighted",
    title="Weighted Training for Cross-Task Learning",
    authors=("Shuxiao Chen", "Koby Crammer", "Hangfeng He", "Dan Roth", "Weijie J. Su"),
    venue="International Conference on Learning Representations",
    year=2022,
    url="https://arxiv.org/abs/2105.14095",
)

METAWEIGHTING = Paper(
    key="mao2022metaweighting",
    title="MetaWeighting: Learning to Weight Tasks in Multi-Task Learning",
    authors=("Yuren Mao", "Zekai Wang", "Weiwei Liu", "Xuemin Lin", "Pengtao Xie"),
    venue="Findings of the Association for Computational Linguistics: ACL 2022",
    year=2022,
    url="https://aclanthology.org/2022.findings-acl.271",
)

INFORMATION_TRANSFER = Paper(
    key="wu2020understanding",
    title="Understanding and Improving Information Transfer in Multi-Task Learning",
    authors=("Sen Wu", "Hongyang R. Zhang", "Christopher Ré"),
    venue="International Conference on Learning Representations",
    year=2020,
    url="https://arxiv.org/abs/2005.00944",
)

METAXT = Paper(
    key="sharma2021metaxt",
    title="MetaXT: Meta Cross-Task Transfer between Disparate Label Spaces",
    authors=("Srinagesh Sharma", "Guoqing Zheng", "Ahmed Hassan Awadallah"),
    venue="arXiv:2109.04240",
    year=2021,
    url="https://arxiv.org/abs/2109.04240",
)

UNCERTAINTY = Paper(
    key="kendall2018multitask",
    title="Multi-Task Learning Using Uncertainty to Weigh Losses for Scene Geometry and Semantics",
    authors=("Alex Kendall", "Yarin Gal", "Roberto Cipolla"),
    venue="IEEE Conference on Computer Vision and Pattern Recognition",
    year=2018,
    url="https://arxiv.org/abs/1705.07115",
)

GRADNORM = Paper(
    key="chen2018gradnorm",
    title="GradNorm: Gradient Normalization for Adaptive Loss Balancing in Deep Multitask Networks",
    authors=("Zhao Chen", "Vijay Badrinarayanan", "Chen-Yu Lee", "Andrew Rabinovich"),
    venue="International Conference on Machine Learning",
    year=2018,
    url="https://arxiv.org/abs/1711.02257",
)

MGDA = Paper(
    key="sener2018multitask",
    title="Multi-Task Learning as Multi-Objective Optimization",
    authors=("Ozan Sener", "Vladlen Koltun"),
    venue="Advances in Neural Information Processing Systems",
    year=2018,
    url="https://arxiv.org/abs/1810.04650",
)

DWA = Paper(
    key="liu2019end",
    title="End-to-End Multi-Task Learning with Attention",
    authors=("Shikun Liu", "Edward Johns", "Andrew J. Davison"),
    venue="IEEE Conference on Computer Vision and Pattern Recognition",
    year=2019,
    url="https://arxiv.org/abs/1803.10704",
)

TCHEBYCHEFF = Paper(
    key="mao2020tchebycheff",
    title="Tchebycheff Procedure for Multi-task Text Classification",
    authors=("Yuren Mao", "Shuang Yun", "Weiwei Liu", "Bo Du"),
    venue="Annual Meeting of the Association for Computational Linguistics",
    year=2020,
    url="https://aclanthology.org/2020.acl-main.388",
)

SMOOTH_TCHEBYCHEFF = Paper(
    key="lin2024smooth",
    title="Smooth Tchebycheff Scalarization for Multi-Objective Optimization",
    authors=("Xi Lin", "Xiaoyuan Zhang", "Zhiyuan Yang", "Fei Liu", "Zhenkun Wang", "Qingfu Zhang"),
    venue="International Conference on Machine Learning",
    year=2024,
    url="https://arxiv.org/abs/2402.19078",
)

BANDIT = Paper(
    key="mao2021banditmtl",
    title="BanditMTL: Bandit-based Multi-task Learning for Text Classification",
    authors=("Yuren Mao", "Zekai Wang", "Weiwei Liu", "Xuemin Lin", "Wenbin Hu"),
    venue="Annual Meeting of the Association for Computational Linguistics",
    year=2021,
    url="https://aclanthology.org/2021.acl-long.428",
)

RANDOM_WEIGHTS = Paper(
    key="lin2022reasonable",
    title="Reasonable Effectiveness of Random Weighting: A Litmus Test for Multi-Task Learning",
    authors=("Baijiong Lin", "Feiyang Ye", "Yu Zhang", "Ivor W. Tsang"),
    venue="Transactions on Machine Learning Research",
    year=2022,
    url="https://arxiv.org/abs/2111.10603",
)

GETMTL = Paper(
    key="chai2023improving",
    title="Improving Gradient Trade-offs between Tasks in Multi-task Text Classification",
    authors=("Heyan Chai", "Jinhao Cui", "Ye Wang", "Min Zhang", "Binxing Fang", "Qing Liao"),
    venue="Annual Meeting of the Association for Computational Linguistics",
    year=2023,
    url="https://aclanthology.org/2023.acl-long.144",
)

JACOBIAN_DESCENT = Paper(
    key="quinton2024jacobian",
    title="Jacobian Descent for Multi-Objective Optimization",
    authors=("Pierre Quinton", "Valérian Rey"),
    venue="arXiv:2406.16232",
    year=2024,
    url="https://arxiv.org/abs/2406.16232",
)

MT_DNN = Paper(
    key="liu2019multitask",
    title="Multi-Task Deep Neural Networks for Natural Language Understanding",
    authors=("Xiaodong Liu", "Pengcheng He", "Weizhu Chen", "Jianfeng Gao"),
    venue="Annual Meeting of the Association for Computational Linguistics",
    year=2019,
    url="https://aclanthology.org/P19-1441",
)

TEXTCNN = Paper(
    key="kim2014convolutional",
    title="Convolutional Neural Networks for Sentence Classification",
    authors=("Yoon Kim",),
    venue="Conference on Empirical Methods in Natural Language Processing",
    year=2014,
    url="https://aclanthology.org/D14-1181",
)

GLOVE = Paper(
    key="pennington2014glove",
    title="GloVe: Global Vectors for Word Representation",
    authors=("Jeffrey Pennington", "Richard Socher", "Christopher D. Manning"),
    venue="Conference on Empirical Methods in Natural Language Processing",
    year=2014,
    url="https://aclanthology.org/D14-1162",
)

MINILM = Paper(
    key="wang2020minilm",
    title="MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
    authors=("Wenhui Wang", "Furu Wei", "Li Dong", "Hangbo Bao", "Nan Yang", "Ming Zhou"),
    venue="Advances in Neural Information Processing Systems",
    year=2020,
    url="https://arxiv.org/abs/2002.10957",
)

LORA = Paper(
    key="hu2022lora",
    title="LoRA: Low-Rank Adaptation of Large Language Models",
    authors=(
        "Edward J. Hu",
        "Yelong Shen",
        "Phillip Wallis",
        "Zeyuan Allen-Zhu",
        "Yuanzhi Li",
        "Shean Wang",
        "Lu Wang",
        "Weizhu Chen",
    ),
    venue="International Conference on Learning Representations",
    year=2022,
    url="https://arxiv.org/abs/2106.09685",
)

ADVERSARIAL = Paper(
    key="liu2017adversarial",
    title="Adversarial Multi-task Learning for Text Classification",
    authors=("Pengfei Liu", "Xipeng Qiu", "Xuanjing Huang"),
    venue="Annual Meeting of the Association for Computational Linguistics",
    year=2017,
    url="https://aclanthology.org/P17-1001",
)

GRADIENT_REVERSAL = Paper(
    key="ganin2015unsupervised",
    title="Unsupervised Domain Adaptation by Backpropagation",
    authors=("Yaroslav Ganin", "Victor Lempitsky"),
    venue="International Conference on Machine Learning",
    year=2015,
    url="https://arxiv.org/abs/1409.7495",
)

ADAPTERS = Paper(
    key="houlsby2019parameterefficient",
    title="Parameter-Efficient Transfer Learning for NLP",
    authors=(
        "Neil Houlsby",
        "Andrei Giurgiu",
        "Stanisław Jastrzębski",
        "Bruna Morrone",
        "Quentin de Laroussilhe",
        "Andrea Gesmundo",
        "Mona Attariyan",
        "Sylvain Gelly",
    ),
    venue="International Conference on Machine Learning",
    year=2019,
    url="https://arxiv.org/abs/1902.00751",
)

ADAPTER_FUSION = Paper(
    key="pfeiffer2021adapterfusion",
    title="AdapterFusion: Non-Destructive Task Composition for Transfer Learning",
    authors=("Jonas Pfeiffer", "Aishwarya Kamath", "Andreas Rücklé", "Kyunghyun Cho", "Iryna Gurevych"),
    venue="Conference of the European Chapter of the Association for Computational Linguistics",
    year=2021,
    url="https://aclanthology.org/2021.eacl-main.39",
)

PROBES = Paper(
    key="alain2016understanding",
    title="Understanding Intermediate Layers Using Linear Classifier Probes",
    authors=("Guillaume Alain", "Yoshua Bengio"),
    venue="arXiv:1610.01644",
    year=2016,
    url="https://arxiv.org/abs/1610.01644",
)

STACKING = Paper(
    key="wolpert1992stacked",
    title="Stacked Generalization",
    authors=("David H. Wolpert",),
    venue="Neural Networks",
    year=1992,
    url="https://doi.org/10.1016/S0893-6080(05)80023-1",
)

LEEP = Paper(
    key="nguyen2020leep",
    title="LEEP: A New Measure to Evaluate Transferability of Learned Representations",
    authors=("Cuong V. Nguyen", "Tal Hassner", "Matthias Seeger", "Cedric Archambeau"),
    venue="International Conference on Machine Learning",
    year=2020,
    url="https://arxiv.org/abs/2002.12462",
)

NCE = Paper(
    key="tran2019transferability",
    title="Transferability and Hardness of Supervised Classification Tasks",
    authors=("Anh T. Tran", "Cuong V. Nguyen", "Tal Hassner"),
    venue="IEEE/CVF International Conference on Computer Vision",
    year=2019,
    url="https://arxiv.org/abs/1908.08142",
)

LOGME = Paper(
    key="you2021logme",
    title="LogME: Practical Assessment of Pre-trained Models for Transfer Learning",
    authors=("Kaichao You", "Yong Liu", "Jianmin Wang", "Mingsheng Long"),
    venue="International Conference on Machine Learning",
    year=2021,
    url="https://arxiv.org/abs/2102.11005",
)

H_SCORE = Paper(
    key="bao2019information",
    title="An Information-Theoretic Approach to Transferability in Task Transfer Learning",
    authors=(
        "Yajie Bao",
        "Yang Li",
        "Shao-Lun Huang",
        "Lin Zhang",
        "Lizhong Zheng",
        "Amir Zamir",
        "Leonidas Guibas",
    ),
    venue="IEEE International Conference on Image Processing",
    year=2019,
    url="https://arxiv.org/abs/2212.10082",
)

SHRINKAGE_H_SCORE = Paper(
    key="ibrahim2022newer",
    title=(
        "Newer is not always better: Rethinking transferability metrics, their peculiarities, stability and performance"
    ),
    authors=("Shibal Ibrahim", "Natalia Ponomareva", "Rahul Mazumder"),
    venue="European Conference on Machine Learning and Principles and Practice of Knowledge Discovery in Databases",
    year=2022,
    url="https://arxiv.org/abs/2110.06893",
)

LEDOIT_WOLF = Paper(
    key="ledoit2004wellconditioned",
    title="A well-conditioned estimator for large-dimensional covariance matrices",
    authors=("Olivier Ledoit", "Michael Wolf"),
    venue="Journal of Multivariate Analysis",
    year=2004,
    url="https://doi.org/10.1016/S0047-259X(03)00096-4",
)

CKA = Paper(
    key="kornblith2019similarity",
    title="Similarity of Neural Network Representations Revisited",
    authors=("Simon Kornblith", "Mohammad Norouzi", "Honglak Lee", "Geoffrey Hinton"),
    venue="International Conference on Machine Learning",
    year=2019,
    url="https://arxiv.org/abs/1905.00414",
)

UNBIASED_HSIC = Paper(
    key="song2012feature",
    title="Feature Selection via Dependence Maximization",
    authors=("Le Song", "Alex Smola", "Arthur Gretton", "Justin Bedo", "Karsten Borgwardt"),
    venue="Journal of Machine Learning Research",
    year=2012,
    url="https://jmlr.org/papers/v13/song12a.html",
)

CONFIDENT_LEARNING = Paper(
    key="northcutt2021confident",
    title="Confident Learning: Estimating Uncertainty in Dataset Labels",
    authors=("Curtis G. Northcutt", "Lu Jiang", "Isaac L. Chuang"),
    venue="Journal of Artificial Intelligence Research",
    year=2021,
    url="https://arxiv.org/abs/1911.00068",
)

GRAD_TAG = Paper(
    key="li2024scalable",
    title="Scalable Multitask Learning Using Gradient-based Estimation of Task Affinity",
    authors=("Dongyue Li", "Aneesh Sharma", "Hongyang R. Zhang"),
    venue="ACM SIGKDD Conference on Knowledge Discovery and Data Mining",
    year=2024,
    url="https://arxiv.org/abs/2409.06091",
)

PAPERS: tuple[Paper, ...] = (
    TAWT,
    METAWEIGHTING,
    INFORMATION_TRANSFER,
    METAXT,
    UNCERTAINTY,
    GRADNORM,
    MGDA,
    DWA,
    TCHEBYCHEFF,
    SMOOTH_TCHEBYCHEFF,
    BANDIT,
    RANDOM_WEIGHTS,
    GETMTL,
    JACOBIAN_DESCENT,
    ADVERSARIAL,
    GRADIENT_REVERSAL,
    MT_DNN,
    TEXTCNN,
    GLOVE,
    MINILM,
    LORA,
    ADAPTERS,
    ADAPTER_FUSION,
    PROBES,
    STACKING,
    LEEP,
    NCE,
    LOGME,
    H_SCORE,
    SHRINKAGE_H_SCORE,
    LEDOIT_WOLF,
    CKA,
    UNBIASED_HSIC,
    CONFIDENT_LEARNING,
    GRAD_TAG,
)
